#!/usr/bin/env bash
# From a fresh checkout to a trained and tested translator, in minutes: scripts/quickstart.sh [key=value ...]
#
# Installs into .venv, trains a small English-German model on the bundled corpus, translates three sentences and
# reports BLEU. Run again it reinstalls nothing and goes on with the training where it stopped. Options of nmt-train
# may follow, such as run_dir=runs/longer training.max_updates=2000. What it needs is described in setup.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

run_dir=runs/quickstart
for option in "$@"; do
  if [[ "$option" == run_dir=* ]]; then run_dir="${option#run_dir=}"; fi
done

set_up
cd "$root"

started=$SECONDS
printf 'Training (Ctrl-C stops it; the same command goes on)\n' >&2
nmt-train "$@" >/dev/null
printf '%-48s %4d s\n\n' "Trained, averaged and tested" $((SECONDS - started)) >&2

sentences="My sister bought an old bicycle in Berlin last week.
Did the teacher see the new car yesterday?
I believe that the children want to go home because they are hungry."
translations="$(nmt-translate model_dir="$run_dir" <<<"$sentences")"
printf 'Three sentences it has not seen\n'
paste -d '\n' <(echo "$sentences") <(echo "$translations") /dev/null | sed 's/^./  &/'

printf 'The test set\n'
nmt-eval model_dir="$run_dir"

cat <<EOF

What to try next (after: source $venv/bin/activate)
  nmt-translate model_dir=$run_dir                     type a sentence, read its translation
  nmt-translate model_dir=$run_dir input=FILE output=FILE decoding.beam_size=8
  nmt-train model.norm=post run_dir=runs/post_norm     normalisation where the paper has it: slower to learn
  nmt-train data=local data.source_lang=en data.target_lang=de \\
      data.train.source=a.en data.train.target=a.de    your own files; see README.md for the other keys
  nmt-train --help                                     every option, its meaning and default
  tensorboard --logdir $run_dir/tensorboard            the curves of the training
EOF
