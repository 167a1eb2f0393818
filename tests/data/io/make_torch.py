"""Writes torch.pt, checkpoint.pth, the refused ones and wide.npz of this folder (PyTorch 2.15).

    python make_torch.py    (in this folder; needs torch and numpy)

torch.pt has the arrays of numpy.npz as a dict. checkpoint.pth is a checkpoint as training scripts
write it: a module's state_dict with tied weights, a parameter, views, numbers and texts."""
import collections, io, pickle, zipfile
import numpy as np
import torch

arrays = np.load("numpy.npz")
state = collections.OrderedDict()
for name in arrays.files:
    a = arrays[name]
    if name == "bf16":
        state[name] = torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
    elif name == "fortran":
        state[name] = torch.from_numpy(np.asfortranarray(a))
    else:
        state[name] = torch.from_numpy(np.ascontiguousarray(a).reshape(a.shape))
torch.save(state, "torch.pt")

module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
with torch.no_grad():
    module[0].weight.copy_(torch.arange(12).reshape(3, 4))
    module[0].bias.copy_(torch.arange(3) / 2)
tied = module.state_dict()
tied["tied"] = tied["0.weight"]
whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
torch.save({"model": tied, "parameter": module[0].weight, "epoch": 3, "rate": 0.125,
            "name": "net", "list": [torch.ones(2), torch.zeros(1)], "tail": whole[2:],
            "strided": whole[:, ::2], "transposed": whole.t(),
            "channels_last": whole.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last), "size": whole.size()},
           "checkpoint.pth")


def archive(path, pickled, order="little"):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickled)
        z.writestr("archive/byteorder", order)


class Calls:
    def __reduce__(self):
        return print, ("executed",)


archive("calls.pt", pickle.dumps({"a": Calls()}, 2))
archive("bigendian.pt", pickle.dumps({}, 2), "big")
torch.save({"a": torch.ones(2)}, "old.pt", _use_new_zipfile_serialization=False)

zipfile.ZIP64_LIMIT = 8  # so that a small archive is written as one beyond 4 GiB
with zipfile.ZipFile("wide.npz", "w") as z:
    data = io.BytesIO()
    np.save(data, np.arange(5, dtype=np.float32))
    with z.open("a.npy", "w", force_zip64=True) as f:
        f.write(data.getvalue())
