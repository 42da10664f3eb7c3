#!/usr/bin/env bash
# Trains tiny models on Multi30k (Elliott et al. 2016), English to German, lower-cased as in the papers.
#
#   scripts/multi30k.sh [--cased] FOLDER RUN [key=value ...]
#   scripts/multi30k.sh multi30k runs/two seed=2
#
# FOLDER contains train, val and test_2016_flickr, each as .en and .de, plain or .gz. Options of nmt-train may
# follow; they apply to all trainings. --cased does not lower-case the text.
#
#   1. RUN/both            one model for both directions (Ding et al. 2021)
#   2. RUN/forward         a warm start from RUN/both, English to German only
#   3. RUN/final           a warm start from RUN/forward, with a third of its dropout and with R-Drop
#                          (Liang et al. 2021)
#   4. RUN/plain1, plain2  two models trained on the pairs only, with different seeds
#   5. RUN/test.de         the translations of the test set by the ensemble of final, plain1 and plain2;
#                          their scores are printed
#
# Finished steps are skipped: run the same command again to resume. docs/multi30k.md has results.
set -euo pipefail

form=lower
if [[ "${1-}" == --cased ]]; then
  form=cased
  shift
fi
if [[ $# -lt 2 || "$1" == *=* || "$2" == *=* || "$1" == -* ]]; then
  echo "usage: scripts/multi30k.sh [--cased] FOLDER RUN [key=value ...]" >&2
  exit 2
fi
corpus="$1" run="$2"
shift 2
names=({train,val,test_2016_flickr}.{en,de})
for name in "${names[@]}"; do
  if [[ ! -e "$corpus/$name" && ! -e "$corpus/$name.gz" ]]; then
    echo "$corpus/$name: no such file, nor $corpus/$name.gz" >&2
    exit 2
  fi
done

if ! command -v nmt-train >/dev/null; then
  source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
  set_up
fi
text="$run/$form"
mkdir -p "$text"

# Writes RUN/lower/NAME or RUN/cased/NAME from FOLDER/NAME or FOLDER/NAME.gz.
for name in "${names[@]}"; do
  if [[ ! -e "$text/$name" ]]; then
    if [[ -e "$corpus/$name.gz" ]]; then gzip -dc "$corpus/$name.gz"; else cat "$corpus/$name"; fi |
      if [[ $form == cased ]]; then cat; else
        python3 -c 'import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().decode().lower().encode())'
      fi >"$text/.$name"
    mv "$text/.$name" "$text/$name"
  fi
done

common=(
  experiment=multi30k data.source_lang=en data.target_lang=de
  data.hub.path=null data.train.split=null data.valid.split=null data.test.split=null
  data.valid.source="$text/val.en" data.valid.target="$text/val.de"
  data.test.source="$text/test_2016_flickr.en" data.test.target="$text/test_2016_flickr.de"
  data.tokenizer.vocab_size=10000 data.max_tokens=2048
  model.norm=post model.dropout=0.3 # post-norm, as in the paper
  training.rdrop=0 training.clip_norm=0 training.validate_every=1000
  training.checkpoint_every=100 training.keep_checkpoints=10 training.averaging.{kind=last,count=10}
)

nmt-train "${common[@]}" run_dir="$run/both" \
  data.train.corpora.forth.source="$text/train.en" data.train.corpora.forth.target="$text/train.de" \
  data.train.corpora.back.source="$text/train.de" data.train.corpora.back.target="$text/train.en" \
  data.train.corpora.back.source_lang=de data.train.corpora.back.target_lang=en \
  training.schedule.{name=inverse_sqrt,peak=5e-3,warmup_updates=2000} training.max_updates=6000 "$@" >/dev/null

common+=(data.train.source="$text/train.en" data.train.target="$text/train.de")

nmt-train "${common[@]}" run_dir="$run/forward" start_from="$run/both" \
  training.schedule.{name=linear,peak=3e-3,warmup_updates=500} training.max_updates=4000 "$@" >/dev/null

nmt-train "${common[@]}" run_dir="$run/final" start_from="$run/forward" \
  model.dropout=0.1 training.rdrop=5 training.checkpoint_every=50 training.validate_every=500 \
  training.schedule.{name=linear,peak=1.6e-3,warmup_updates=100} training.max_updates=1500 "$@" >/dev/null

seed=1
for option in "$@"; do
  if [[ $option == seed=* ]]; then seed="${option#seed=}"; fi
done
for number in 1 2; do
  nmt-train "${common[@]}" run_dir="$run/plain$number" data.tokenizer.path="$run/both" \
    training.schedule.{name=inverse_sqrt,peak=5e-3,warmup_updates=2000} training.max_updates=8000 \
    "$@" seed="$((10 * seed + number))" >/dev/null
done

nmt-eval "model_dir=[$run/final,$run/plain1,$run/plain2]" output="$run/test.de" \
  decoding.beam_size=5 decoding.length_penalty=1.4
