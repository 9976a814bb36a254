"""The digits' classifier reads more test images right than a linear one, and draws its picture."""

import numpy as np
from examples import digits
from sklearn.linear_model import LogisticRegression


def arrays(part):
    """Pixels and digits of a part of the data, for scikit-learn."""
    images, read = (t.numpy()[part.indices] for t in part.dataset.tensors)
    return images.reshape(len(images), -1), read


def test_better_than_logistic_regression(tmp_path, drawn, capsys):
    path = tmp_path / "digits.png"
    right = digits.main(str(path), epochs=8)
    training, test = digits.data(0)
    linear = LogisticRegression(max_iter=2000).fit(*arrays(training)).score(*arrays(test))
    assert right > linear and right >= 0.97, (right, linear)
    printed = capsys.readouterr().out
    assert f"of {len(test)} test images read right: {right:.2%}" in printed
    drawn(path)


def test_the_split_is_one():
    training, test = digits.data(0)
    assert len(training) + len(test) == 1797
    assert not set(training.indices.tolist()) & set(test.indices.tolist())


def test_what_is_reported_is_what_the_averages_read():
    trainer, test = digits.train(epochs=2, progress=False)
    images, found, read = digits.answers(trainer, test)
    assert images.shape == (len(test), 8, 8)
    np.testing.assert_allclose(
        trainer.history.validation["accuracy"][-1], np.mean(found == read), rtol=1e-6
    )


def test_equal_seeds_give_equal_runs():
    first, second, other = (
        digits.train(epochs=1, seed=seed, progress=False)[0].history["loss"] for seed in (3, 3, 4)
    )
    assert first == second != other
