"""NaN and infinities are found in every kind of tensor."""

import pytest
import torch

from holdfast.state.registered import has_only_numbers, is_finite

pytestmark = pytest.mark.torch

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize("kind", [*KINDS, torch.float8_e4m3fn])
def test_one_odd_element_is_found_wherever_it_is(kind):
    for odd in (float("nan"), float("inf"), -float("inf")):
        if kind is torch.float8_e4m3fn and odd == odd:
            continue  # it has no infinities
        for place in (0, 57, 99):
            tensor = torch.linspace(-2, 2, 100).to(kind)
            assert has_only_numbers(tensor)
            tensor[place] = odd
            assert not has_only_numbers(tensor)


def test_an_infinity_may_hide_in_the_imaginary_part():
    assert not has_only_numbers(torch.tensor([1 + 2j, complex(0, float("inf"))]))
    assert not has_only_numbers(torch.tensor([complex(0, float("nan"))]).conj())


def test_sums_that_would_overflow_are_still_numbers():
    assert has_only_numbers(torch.full((10,), torch.finfo(torch.float32).max))


@pytest.mark.parametrize("tensor", [torch.arange(3), torch.tensor([True]), torch.empty(0)])
def test_what_has_no_such_elements_is_fine(tensor):
    assert has_only_numbers(tensor)
    assert is_finite({"a": tensor})
