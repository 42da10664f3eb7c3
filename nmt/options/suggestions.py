"""Suggests options for the option names of other toolkits.

The names come from fairseq, Marian, OpenNMT, JoeyNMT, Sockeye and Hugging Face. A suggestion names options
that the command has, and says how the meaning differs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from nmt.config import EvalConfig, ExportConfig, ImportConfig, ServeConfig, TrainConfig, TranslateConfig
from nmt.config.paths import schema_keys


@dataclass(frozen=True)
class Word:
    """The meaning of an option name of another toolkit."""

    options: tuple[str, ...]
    """Keys, or `key=value`. A command suggests those that it has."""
    remark: str = ""
    """How the meaning differs, or the alternative. A remark that begins with "It " is about the value."""

    @property
    def differs(self) -> bool:
        """Whether a value of the other toolkit has another meaning here; the remark explains the value."""
        return self.remark.startswith("It ")


# One entry per meaning: the names in other toolkits, the options, the remark.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    # learning rate and optimizer
    (
        "lr learning_rate learn_rate initial_learning_rate max_lr base_lr",
        "training.schedule.peak",
        "noam, the default schedule, has training.schedule.scale instead.",
    ),
    ("min_lr stop_min_lr learning_rate_min lr_end end_learning_rate", "training.schedule.final", ""),
    (
        "warmup warmup_steps warmup_updates lr_warmup num_warmup_steps learning_rate_warmup "
        "warmup_init_steps",
        "training.schedule.warmup_updates",
        "",
    ),
    (
        "warmup_ratio warmup_epochs warmup_init_lr",
        "training.schedule.warmup_updates",
        "It is a number of updates.",
    ),
    (
        "lr_scheduler lr_scheduler_type scheduler scheduling decay_method "
        "learning_rate_scheduler_type lr_decay",
        "training.schedule.name",
        "",
    ),
    ("optim optimizer optimizer_type", "training.optimizer.name", ""),
    ("adam_betas betas adam_beta1", "training.optimizer.beta1 training.optimizer.beta2", ""),
    ("adam_beta2", "training.optimizer.beta2", ""),
    ("adam_eps adam_epsilon eps", "training.optimizer.epsilon", ""),
    ("wd l2 decay weight_decay", "training.optimizer.weight_decay", ""),
    ("label_smooth smoothing label_smoothing_factor", "training.label_smoothing", ""),
    ("clip clip_grad clip_gradient gradient_clipping max_grad_norm clip_grad_norm", "training.clip_norm", ""),
    ("ema_decay exponential_smoothing moving_average", "training.ema", ""),
    ("r_drop rdrop_alpha reg_alpha", "training.rdrop", ""),
    # batches
    (
        "batch_size batch bsz per_device_train_batch_size train_batch_size mini_batch",
        "data.max_tokens decoding.max_sentences",
        "data.max_tokens counts target tokens, not sentences.",
    ),
    ("max_tokens batch_tokens tokens_per_batch mini_batch_words", "data.max_tokens decoding.max_tokens", ""),
    ("batch_type", "data.max_tokens decoding.max_tokens", "Training batches are measured in target tokens."),
    (
        "max_sentences eval_batch_size per_device_eval_batch_size translate_batch_size mini_batch_size",
        "decoding.max_sentences",
        "",
    ),
    (
        "accum accum_count accum_steps update_freq update_interval gradient_accumulation_steps "
        "batch_multiplier "
        "optimizer_delay",
        "training.micro_batches",
        "It is the number of batches per update over all processes.",
    ),
    ("auto_scale_batch_size auto_find_batch_size mini_batch_fit workspace", "data.max_tokens=auto", ""),
    # length of the training
    ("epochs num_epochs max_epoch num_train_epochs after_epochs max_num_epochs", "training.max_epochs", ""),
    (
        "steps max_steps train_steps max_update num_updates total_num_update training_steps "
        "iterations max_iter "
        "after_batches num_steps",
        "training.max_updates",
        "",
    ),
    ("max_time stop_time_hours max_seconds hours", "training.max_minutes", "It is in minutes."),
    (
        "early_stopping early_stop early_stopping_patience max_num_checkpoint_not_improved stop_patience",
        "training.patience",
        "It is the number of validations without a better criterion; 0 never stops.",
    ),
    (
        "early_stopping_metric metric_for_best_model best_checkpoint_metric early_stopping_criteria "
        "optimized_metric "
        "maximize_best_checkpoint_metric greater_is_better",
        "training.criterion",
        "It is loss, or the key of a metric, such as bleu.",
    ),
    # validation, checkpoints, logs
    (
        "eval_steps valid_steps validate_interval_updates validate_interval valid_freq "
        "validation_freq eval_every "
        "valid_interval evaluation_strategy eval_strategy",
        "training.validate_every",
        "It is a number of updates; 0 means at the end of every epoch.",
    ),
    (
        "save_steps save_checkpoint_steps save_interval_updates save_interval save_freq checkpoint_interval "
        "checkpoint_frequency save_every save_strategy",
        "training.checkpoint_every",
        "It is a number of updates.",
    ),
    (
        "save_total_limit keep_last_epochs keep_interval_updates keep_checkpoint keep_best_checkpoints "
        "keep_last_params keep_best_ckpts keep_checkpoint_max num_checkpoints_to_keep",
        "training.keep_checkpoints",
        "",
    ),
    (
        "log_interval logging_steps report_every logging_freq disp_freq print_every log_steps "
        "log_every_n_steps",
        "training.log_every",
        "",
    ),
    (
        "average average_checkpoints checkpoint_average avg",
        "training.averaging.kind training.averaging.count",
        "",
    ),
    (
        "tensorboard tensorboard_logdir tensorboard_log_dir logdir report_to",
        "",
        "TensorBoard files are always written to run_dir/tensorboard.",
    ),
    ("wandb wandb_project use_wandb", "", "Curves are in run_dir/metrics.jsonl and run_dir/tensorboard."),
    ("verbose quiet log_level loglevel", "", "The log goes to standard error and to run_dir/train.log."),
    # folders and models
    (
        "output_dir save_dir model_prefix save_model out_dir work_dir results_path exp_dir logging_dir",
        "run_dir output",
        "",
    ),
    (
        "overwrite overwrite_output_dir force",
        "resume=never",
        "It needs an empty folder; nothing is overwritten.",
    ),
    (
        "resume_from resume_from_checkpoint reset_optimizer continue continue_training load_checkpoint",
        "resume",
        "The same command with the same run_dir resumes.",
    ),
    (
        "restore_file train_from finetune_from_model pretrained pretrained_model model_name_or_path "
        "init_from params "
        "load_model finetune pretrained_model_path",
        "start_from model_dir",
        "",
    ),
    ("checkpoint ckpt checkpoint_path model_path models model checkpoints", "start_from model_dir", ""),
    (
        "freeze_encoder freeze_decoder freeze_embeddings freeze_word_vecs_enc freeze_word_vecs_dec "
        "embedding_fix_src embedding_fix_trg fixed_param_names fixed_param_strategy frozen_layers",
        "training.freeze",
        "",
    ),
    ("experiment_name run_name exp_name", "name", ""),
    # the machine
    (
        "gpus num_gpus ngpus gpu n_gpu gpu_ids gpu_ranks world_size nproc_per_node "
        "distributed_world_size num_devices "
        "nprocs",
        "training.devices device",
        "",
    ),
    (
        "device cuda use_cuda use_gpu cpu no_cuda use_cpu accelerator",
        "training.devices device",
        "A GPU is used if there is one; CUDA_VISIBLE_DEVICES= hides it.",
    ),
    ("fp16 half float16 use_fp16", "training.precision=fp16 precision=fp16", ""),
    ("bf16 bfloat16", "training.precision=bf16 precision=bf16", ""),
    ("amp mixed_precision autocast dtype apex torch_dtype", "training.precision precision", ""),
    ("num_threads n_threads cpu_threads intra_threads", "training.threads threads", ""),
    ("num_workers num_proc preprocessing_num_workers num_cpus", "data.workers", ""),
    ("dataloader_num_workers prefetch_factor data_loader_workers", "data.loaders", ""),
    (
        "compile torch_compile jit use_compile",
        "",
        "It was removed: on GPUs, kernels of nmt fuse the layers without it.",
    ),
    ("fsdp zero ddp_backend deepspeed sharded", "training.sharding", ""),
    ("random_seed manual_seed rng_seed", "seed", ""),
    # the model
    (
        "hidden_size d_hidden embed_dim emb_size rnn_size embedding_dim dim_emb hidden_dim "
        "model_size encoder_embed_dim "
        "decoder_embed_dim transformer_model_size dim embedding_size n_embd word_vec_size",
        "model.d_model",
        "",
    ),
    (
        "ffn_dim ff_size transformer_ff dim_feedforward encoder_ffn_dim decoder_ffn_dim "
        "encoder_ffn_embed_dim "
        "decoder_ffn_embed_dim intermediate_size transformer_dim_ffn feed_forward_num_hidden d_inner",
        "model.d_ff",
        "",
    ),
    (
        "layers num_layers n_layers num_hidden_layers n_layer",
        "model.encoder_layers model.decoder_layers",
        "",
    ),
    ("enc_layers enc_depth num_encoder_layers", "model.encoder_layers", ""),
    ("dec_layers dec_depth num_decoder_layers", "model.decoder_layers", ""),
    (
        "num_heads n_heads n_head nhead attention_heads encoder_attention_heads decoder_attention_heads "
        "num_attention_heads transformer_heads transformer_attention_heads",
        "model.heads",
        "",
    ),
    ("p_dropout hidden_dropout residual_dropout transformer_dropout dropout_rate", "model.dropout", ""),
    (
        "attention_dropout attn_dropout",
        "model.dropout",
        "Attention weights have no dropout, as in the paper.",
    ),
    ("activation_dropout relu_dropout act_dropout", "model.ffn_dropout", ""),
    ("token_dropout embed_dropout dropout_src", "model.word_dropout", ""),
    ("activation_fn act_fn hidden_act", "model.activation", ""),
    (
        "normalize_before encoder_normalize_before pre_norm layer_norm transformer_preprocess",
        "model.norm",
        "",
    ),
    (
        "share_all_embeddings share_embeddings tied_embeddings tied_embeddings_all tie_word_embeddings "
        "share_decoder_input_output_embed weight_tying tied_softmax",
        "model.tie",
        "It is all, target or none.",
    ),
    ("position_encoding pos_enc positional_encoding position_embedding_type", "model.positions.name", ""),
    ("arch architecture model_type task", "model", "Choose a size: model=tiny, small, base or big."),
    # data
    ("src src_file source_file train_src source_path input_file", "data.train.source source input", ""),
    ("tgt trg tgt_file target_file train_tgt target_path", "data.train.target references", ""),
    ("src_lang source_language src_language", "data.source_lang", ""),
    ("tgt_lang trg_lang target_language tgt_language", "data.target_lang target_lang", ""),
    ("source", "data.train.source data.source_lang input", ""),
    ("target", "data.train.target data.target_lang references", ""),
    (
        "train trainpref train_file train_data train_set train_sets train_path training_data",
        "data.train.source data.train.target data.train.path",
        "",
    ),
    (
        "valid dev validpref valid_file validation_file valid_data dev_file valid_set valid_sets "
        "dev_data validation",
        "data.valid.source data.valid.target data.valid.path",
        "",
    ),
    (
        "test testpref test_file test_data test_set",
        "data.test.source data.test.target data.test.sacrebleu source",
        "",
    ),
    ("dataset dataset_name dataset_path corpus", "data.hub.path data", ""),
    ("dataset_config dataset_config_name subset", "data.hub.name", ""),
    (
        "vocab_size vocab vocabs n_vocab vocabulary_size src_vocab_size tgt_vocab_size dim_vocabs num_words "
        "bpe_codes bpe_ops num_symbols",
        "data.tokenizer.vocab_size",
        "",
    ),
    ("joined_dictionary share_vocab joint_vocab shared_vocab", "data.tokenizer.joint", ""),
    ("bpe tokenizer_type subword_type spm_type model_type_spm", "data.tokenizer.segmentation", ""),
    ("sentencepiece_model spm src_vocab tgt_vocab srcdict tgtdict vocab_file", "data.tokenizer.path", ""),
    ("bpe_dropout subword_alpha sp_alpha spm_alpha nbest_size", "data.sampling.alpha", ""),
    (
        "max_length max_seq_len max_seq_length max_len max_source_positions max_target_positions "
        "src_seq_length "
        "tgt_seq_length max_source_length max_target_length max_sent_length",
        "data.cleaning.max_pieces decoding.max_source_tokens",
        "",
    ),
    ("max_length_ratio length_ratio ratio", "data.cleaning.max_ratio", ""),
    # decoding and scoring
    ("beam beam_width num_beams beams k", "decoding.beam_size", "1 is greedy search."),
    (
        "lenpen length_pen len_pen alpha beam_alpha normalize",
        "decoding.length_penalty",
        "It is GNMT's alpha.",
    ),
    (
        "max_len_a max_decode_length_factor max_length_factor max_output_length_factor",
        "decoding.max_length_factor",
        "",
    ),
    ("max_len_b max_output_length max_new_tokens max_decoding_length", "decoding.max_length_offset", ""),
    ("n_best nbest num_return_sequences", "decoding.nbest", ""),
    ("output_scores print_scores with_score print_score", "scores", ""),
    ("hyp hyps hypothesis prediction predictions sys", "hypotheses", ""),
    ("ref refs reference gold", "references data.test.target", ""),
    ("metrics metric eval_metric eval_metrics", "evaluation.metrics", "It is a list: [bleu,chrf,ter]."),
    ("valid_metrics validation_metrics", "training.validate_metrics", "It is a list: [bleu,chrf]."),
)

FOREIGN: dict[str, Word] = {
    word: Word(tuple(options.split()), remark)
    for words, options, remark in _MEANINGS
    for word in words.split()
}
"""The meaning of each name."""

COMMANDS = {
    "nmt-train": TrainConfig,
    "nmt-translate": TranslateConfig,
    "nmt-eval": EvalConfig,
    "nmt-export": ExportConfig,
    "nmt-import": ImportConfig,
    "nmt-serve": ServeConfig,
}


def meant(name: str, known: Collection[str]) -> str | None:
    """Returns the end of a message about an unknown option or flag; None if no other toolkit has its name.

    Args:
        name: the option, such as `optim.lr`, `--num-beams` or `-lr`.
        known: the keys of the command.
    """
    meaning = FOREIGN.get(_plain(name))
    if meaning is None:
        return None
    if not meaning.options:
        return f". {meaning.remark}"
    options = [own for option in meaning.options if (own := _same_split(name, option)).split("=")[0] in known]
    if options:
        about = re.match(r"[\w.]+\.\w+", meaning.remark)  # the option that the remark names
        remark = "" if about and about[0] not in options else meaning.remark
        return f". Did you mean {' or '.join(options)}? {remark}".rstrip()
    commands = list(_commands(meaning.options[0]))
    return f". {' and '.join(commands)} {'has' if len(commands) == 1 else 'have'} {meaning.options[0]}."


def corrected_flag(flag: str, value: str | None, known: Collection[str]) -> str:
    """Returns the end of a message about an unknown flag such as `--lr`: the option to use instead.

    Args:
        flag: the flag, without its value.
        value: its value; None if it has none.
        known: the keys of the command.
    """
    name = _plain(flag)
    own = [key for key in known if key == flag.lstrip("-").replace("-", "_")]
    own = own or [key for key in known if key.rpartition(".")[2] == name and "*" not in key]
    meaning = FOREIGN.get(name)
    if meaning is not None and not own[:1] == [name]:
        found = meant(flag, known) or ""
        options = [option for option in meaning.options if option.split("=")[0] in known]
        if len(options) == 1 and "=" not in options[0] and value is not None and not meaning.differs:
            return found.replace(f"{options[0]}?", f"{options[0]}={value}?")
        return found
    if len(own) == 1:
        return f". Did you mean {own[0]}={'...' if value is None else value}?"
    return f". Did you mean {' or '.join(own[:4])}?" if own else ""


def _plain(name: str) -> str:
    """Returns a name as in the table: without its sections, in lower case, with underscores."""
    last = re.sub(r"^[-+~]+", "", name).rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).lower().replace("-", "_")


def _same_split(name: str, option: str) -> str:
    """Returns the option for the split in the name: for `data.valid.src` that is `data.valid.source`."""
    split = re.search(r"\bdata\.(valid|test)\.", name)
    return option.replace("data.train.", f"data.{split[1]}.") if split else option


def _commands(option: str) -> Iterator[str]:
    for program, schema in COMMANDS.items():
        if option.split("=")[0] in schema_keys(schema):
            yield program
