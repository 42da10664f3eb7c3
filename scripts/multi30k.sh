#!/usr/bin/env bash
# A tiny model of Multi30k (Elliott et al. 2016), English to German, in the form of the papers: lower-cased.
#
#   scripts/multi30k.sh FOLDER RUN [key=value ...]       such as: scripts/multi30k.sh multi30k runs/multi30k seed=2
#
# FOLDER has train, val and test_2016_flickr, each as .en and .de, plain or .gz. Options of nmt-train may follow; they
# hold for all three trainings. Nothing but the training set is learnt from:
#
#   1. RUN/both      one model of both directions, which shares its vocabulary (Ding et al. 2021)
#   2. RUN/forward   goes on from it into German alone, with R-Drop (Liang et al. 2021)
#   3. RUN/text      the training set translated by them, into German by the second (Kim and Rush 2016) and into English
#                    by the first (Sennrich et al. 2016), beside itself: Nguyen et al. 2020
#   4. RUN/final     goes on from the second with all of that, its learning rate falling to zero
#
# What is done stays done: the same command goes on where it was stopped. docs/multi30k.md has results.
set -euo pipefail

if [[ $# -lt 2 || "$1" == *=* || "$2" == *=* ]]; then
  echo "usage: scripts/multi30k.sh FOLDER RUN [key=value ...]" >&2
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
text="$run/text"
mkdir -p "$text"

# lower NAME: RUN/text/NAME from FOLDER/NAME or FOLDER/NAME.gz.
lower() {
  if [[ ! -e "$text/$1" ]]; then
    if [[ -e "$corpus/$1.gz" ]]; then gzip -dc "$corpus/$1.gz"; else cat "$corpus/$1"; fi |
      python3 -c 'import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().decode().lower().encode())' >"$text/.$1"
    mv "$text/.$1" "$text/$1"
  fi
}

# translate MODEL INPUT OUTPUT [key=value ...]: unless it is there.
translate() {
  if [[ ! -e "$text/$3" ]]; then nmt-translate model_dir="$run/$1" input="$text/$2" output="$text/$3" "${@:4}"; fi
}

for name in "${names[@]}"; do lower "$name"; done

common=(
  experiment=multi30k data.source_lang=en data.target_lang=de
  data.hub.path=null data.train.split=null data.valid.split=null data.test.split=null
  data.valid.source="$text/val.en" data.valid.target="$text/val.de"
  data.test.source="$text/test_2016_flickr.en" data.test.target="$text/test_2016_flickr.de"
  data.tokenizer.vocab_size=10000 data.max_tokens=2048
  model.norm=post model.dropout=0.3 # post: as in the paper
  training.clip_norm=0 training.validate_every=1000
  training.checkpoint_every=100 training.keep_checkpoints=10 training.averaging.count=10
  training.schedule.name=inverse_sqrt
)

nmt-train "${common[@]}" run_dir="$run/both" training.rdrop=0 \
  data.train.corpora.forth.source="$text/train.en" data.train.corpora.forth.target="$text/train.de" \
  data.train.corpora.back.source="$text/train.de" data.train.corpora.back.target="$text/train.en" \
  data.train.corpora.back.source_lang=de data.train.corpora.back.target_lang=en \
  training.schedule.peak=5e-3 training.schedule.warmup_updates=2000 training.max_updates=6000 "$@" >/dev/null

nmt-train "${common[@]}" run_dir="$run/forward" start_from="$run/both" \
  data.train.source="$text/train.en" data.train.target="$text/train.de" \
  training.schedule.peak=4e-3 training.schedule.warmup_updates=1000 training.max_updates=6350 "$@" >/dev/null

translate forward train.en distilled.de decoding.beam_size=5 decoding.length_penalty=1.4
translate both train.de back.en decoding.beam_size=4 decoding.length_penalty=1.0

# Of real pairs as many as of translated ones.
nmt-train "${common[@]}" run_dir="$run/final" start_from="$run/forward" \
  data.train.corpora.real.source="$text/train.en" data.train.corpora.real.target="$text/train.de" \
  data.train.corpora.back.source="$text/back.en" data.train.corpora.back.target="$text/train.de" \
  data.train.corpora.distilled.source="$text/train.en" data.train.corpora.distilled.target="$text/distilled.de" \
  data.train.corpora.real.weight=2 \
  training.schedule.{name=linear,peak=1.6e-3,warmup_updates=300} training.max_updates=8800 "$@"
