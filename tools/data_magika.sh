#!/bin/sh
# tools/data_magika.sh - Magika's model of file types (Google, Apache 2.0, 3 MB) into data/magika: out of
# its package of PyPI (16 MB), by pip, checked. Nothing of the package is run. Says why and fails where
# there is no pip, or no registry within reach.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=data/magika
package=magika==1.0.3
wheel=3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529
model=fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

give_up() {
    echo "$folder is not there: $*" >&2
    exit 1
}

python3 -m pip --version >/dev/null 2>&1 || give_up "no pip"
echo "$package --hash=sha256:$wheel" >"$work/wanted"
timeout 300 python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes --retries 1 \
    --platform manylinux_2_28_x86_64 --dest "$work" --requirement "$work/wanted" >"$work/log" 2>&1 ||
    give_up "pip cannot fetch $package: $(grep -v '^WARNING' "$work/log" | tail -n 1)"
python3 -m zipfile -e "$work"/*.whl "$work/package" || give_up "the package is no archive"
from=$work/package/magika/models/standard_v3_3
echo "$model  $from/model.onnx" | sha256sum --check --status || give_up "this is another model"
mkdir -p "$folder" && mv "$from/model.onnx" "$from/config.min.json" "$folder"
