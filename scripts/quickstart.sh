#!/usr/bin/env bash
# Trains and tests a small translation model in minutes: scripts/quickstart.sh [key=value ...]
#
# Installs into .venv, trains an English-German model on the bundled corpus, translates three sentences and
# reports BLEU. A second call skips the installation and resumes the training. Options of nmt-train may
# follow, such as run_dir=runs/longer training.max_updates=2000. setup.sh describes the requirements.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

run_dir=runs/quickstart
for option in "$@"; do
  if [[ "$option" == run_dir=* ]]; then run_dir="${option#run_dir=}"; fi
done

set_up
cd "$root"

started=$SECONDS
printf 'Training (Ctrl-C stops it; the same command resumes it)\n' >&2
nmt-train "$@" >/dev/null
printf '%-48s %4d s\n\n' "Trained, averaged and tested" $((SECONDS - started)) >&2

sentences="My sister bought an old bicycle in Berlin last week.
Did the teacher see the new car yesterday?
I believe that the children want to go home because they are hungry."
translations="$(nmt-translate model_dir="$run_dir" <<<"$sentences")"
printf 'Three sentences that are not in the training data\n'
paste -d '\n' <(echo "$sentences") <(echo "$translations") /dev/null | sed 's/^./  &/'

printf 'The test set\n'
nmt-eval model_dir="$run_dir"

cat <<EOF

What to try next (after: source $venv/bin/activate)
  type a sentence, read its translation
      nmt-translate model_dir=$run_dir
  translate a file
      nmt-translate model_dir=$run_dir input=FILE output=FILE decoding.beam_size=8
  train on your own files (README.md describes the options)
      nmt-train data=local data.source_lang=en data.target_lang=de training.budget=1h \\
        data.train.source=a.en data.train.target=a.de data.valid.source=b.en data.valid.target=b.de
  put the normalisation where the paper has it, which trains more slowly
      nmt-train model.norm=post run_dir=runs/post_norm
  see the training curves, and every option
      tensorboard --logdir $run_dir/tensorboard
      nmt-train --help
EOF
