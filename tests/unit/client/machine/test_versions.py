"""The version of a request: the highest that both sides have."""

from __future__ import annotations

import pytest

from oncelog.client.errors import UnsupportedRequest
from oncelog.client.machine.versions import Versions
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.produce import ProduceRequest


def test_versions_whose_records_are_in_other_formats_are_not_chosen() -> None:
    # A broker of 0.10 has Produce 0 to 2 and Fetch 0 to 3: message sets, which this client does not write.
    old = Versions({0: (0, 2), 1: (0, 3)})
    for request in (ProduceRequest, FetchRequest):
        with pytest.raises(UnsupportedRequest, match="this client"):
            old.choose(request)
        assert not old.supports(request)
    assert Versions({0: (0, 7), 1: (0, 11)}).choose(ProduceRequest) == 7
