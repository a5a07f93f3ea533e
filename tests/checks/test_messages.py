"""The check of error messages: which texts are listed, and which are refused."""

from __future__ import annotations

from tests.checks.messages import messages_of, offences


def test_a_fault_without_value_or_way_out_is_refused() -> None:
    [line] = offences("m.py", "raise ConfigError('the address is not valid')")
    assert line.startswith('m.py:1: "the address is not valid"')


def test_a_fault_with_the_value_passes() -> None:
    assert list(offences("m.py", "raise ConfigError(f'{address} is not an address')")) == []


def test_a_fault_with_a_way_out_passes() -> None:
    assert list(offences("m.py", "raise typer.BadParameter('no topics to read; name at least one')")) == []


def test_errors_of_a_peer_are_not_for_users() -> None:
    assert list(offences("m.py", "raise PeerError('the message is not complete')")) == []


def test_every_text_is_listed_with_its_place() -> None:
    source = "raise Refused(code, f'topic {name} exists')\nraise Other(value)\nraise Third('a b' if x else 'c')\n"
    listed = [(message.place, message.exception) for message in messages_of("m.py", source)]
    assert listed == [("m.py:1", "Refused"), ("m.py:3", "Third")]
