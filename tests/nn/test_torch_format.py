"""State dicts: a real torch network with a flatten inside, round trips, and strict errors."""

from __future__ import annotations

import numpy as np
import pytest

import unisync as us
from unisync import errors, nn

torch = pytest.importorskip("torch")


class LeNet(torch.nn.Module):
    """A network as users write it, with the flatten in its forward."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.conv2 = torch.nn.Conv2d(4, 6, 3)
        self.fc1 = torch.nn.Linear(6 * 2 * 3, 8)
        self.fc2 = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


OURS = nn.Sequential(
    {
        "conv1": nn.Conv2d(1, 4, 3), "norm": nn.BatchNorm(4), "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(4, 6, 3), "relu2": nn.ReLU(), "pool": nn.MaxPool2d(2), "flatten": nn.Flatten(),
        "fc1": nn.Linear(36, 8), "relu3": nn.ReLU(), "fc2": nn.Linear(8, 5),
    }
)  # fmt: skip


@pytest.fixture
def lenet():
    torch.manual_seed(0)
    module = LeNet()
    module(torch.randn(16, 1, 9, 11))  # moves the running statistics
    return module.eval()


def test_a_torch_network_gives_the_same_outputs(lenet, backend, rng):
    params, state = nn.from_torch_state_dict(OURS, lenet.state_dict())
    x = rng.standard_normal((3, 9, 11, 1)).astype("float32")
    ours = us.to_numpy(OURS.apply(params, state, us.asarray(x))[0])
    theirs = lenet(torch.tensor(x).movedim(-1, 1)).detach().numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours).max() > 0.05


def test_round_trip(lenet, backend):
    params, state = nn.from_torch_state_dict(OURS, lenet.state_dict())
    with us.backend("torch"):
        back = nn.to_torch_state_dict(OURS, params, state)
    other = LeNet().eval()
    other.load_state_dict(back)  # strict
    x = torch.randn(2, 1, 9, 11)
    torch.testing.assert_close(other(x), lenet(x), rtol=0, atol=0)
    again = nn.from_torch_state_dict(OURS, back)
    for a, b in zip(us.tree.leaves(again), us.tree.leaves((params, state)), strict=True):
        np.testing.assert_array_equal(us.to_numpy(a), us.to_numpy(b))


def test_a_copy_not_a_view(lenet, backend):
    params, _ = nn.from_torch_state_dict(OURS, lenet.state_dict())
    before = us.to_numpy(params["fc2"]["bias"]).copy()
    with torch.no_grad():
        lenet.fc2.bias.add_(1.0)
    np.testing.assert_array_equal(us.to_numpy(params["fc2"]["bias"]), before)


def test_channels_second_need_no_reordering(backend, rng):
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.Flatten(), torch.nn.Linear(3 * 2 * 3, 4))
    model = nn.Sequential([nn.Conv2d(2, 3, 2, data_format="NCHW"), nn.Flatten(), nn.Linear(18, 4)])
    params, _ = nn.from_torch_state_dict(model, module.state_dict())
    x = rng.standard_normal((5, 2, 3, 4)).astype("float32")
    np.testing.assert_allclose(
        us.to_numpy(model(params, us.asarray(x))), module(torch.tensor(x)).detach().numpy(), atol=1e-5
    )


def test_only_the_linear_behind_the_image_is_reordered():
    model = nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.Residual(nn.Conv2d(2, 2, 3, padding=1)), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 4)]
    )
    with us.backend("numpy"):
        params, _ = model.init(0)
        state_dict = nn.to_torch_state_dict(model, params)
    changed = [name for name, x in state_dict.items() if not np.array_equal(x, _at(params, name))]
    assert changed == ["3.weight"]
    expected = params["3"]["weight"].reshape(4, 4, 2).transpose(0, 2, 1).reshape(4, 8)
    np.testing.assert_array_equal(state_dict["3.weight"], expected)


def _at(tree, name):
    for key in name.split("."):
        tree = tree[key]
    return tree


def test_strict_errors():
    model = nn.Sequential([nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)])
    good = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2)).state_dict()
    with us.backend("numpy"):
        nn.from_torch_state_dict(model, good)
        renamed = {k.replace("2.", "3."): v for k, v in good.items()}
        with pytest.raises(
            errors.ArgumentError, match=r"2 missing \['2.bias', '2.weight'\] and 2 not expected \['3.bias'"
        ):
            nn.from_torch_state_dict(model, renamed)
        with pytest.raises(
            errors.ShapeError, match=r"0.weight.*must have shape \(2, 3\), as in the model, got \(2, 5\)"
        ):
            nn.from_torch_state_dict(model, {**good, "0.weight": np.zeros((2, 5))})
        params, _ = model.init(0)
        with pytest.raises(errors.ArgumentError, match=r"1 missing \['0.weight'\]"):
            nn.to_torch_state_dict(model, {**params, "0": {"bias": params["0"]["bias"]}})


def test_a_size_that_cannot_be_an_image():
    model = nn.Sequential([nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(8, 4)])
    with us.backend("numpy"), pytest.raises(errors.ShapeError, match=r"2.weight.*3 channels.*\(4, 8\)"):
        nn.to_torch_state_dict(model, model.init(0)[0])


def test_unknown_parameters_behind_a_flattened_image():
    model = nn.Sequential(
        [nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Function(us.abs), nn.GroupNorm(3, 12), nn.Linear(12, 4)]
    )
    with (
        us.backend("numpy"),
        pytest.raises(errors.ArgumentError, match=r"must have a Linear.*GroupNorm\(3, 12\) at '3'"),
    ):
        nn.to_torch_state_dict(model, model.init(0)[0])


def test_batch_norm_needs_its_state():
    model = us.nn.Sequential([us.nn.Linear(3, 2), us.nn.BatchNorm(2)])
    params, state = model.init(0)
    with pytest.raises(us.errors.ArgumentError, match=r"Try: us.nn.to_torch_state_dict\(model, params, state\)"):
        us.nn.to_torch_state_dict(model, params)
    assert "1.running_mean" in us.nn.to_torch_state_dict(model, params, state)
