"""What the other stories have seen."""

import pytest


@pytest.mark.looks_back
def test_every_operation_was_seen_to_succeed_and_to_fail(contract):
    """An operation that no story calls is one that nobody has seen work."""
    succeeded = {name for name, status in contract.seen if status < 300}
    refused = {name for name, status in contract.seen if status == 401}
    open_to_all = {"Health", "Ready", "ListShapes", "ListRootfs"}
    # No sandbox has an address before there is a network: this one can only be seen to answer 404.
    not_yet = {"GetSandboxByIp"}
    assert contract.operations() - succeeded == not_yet, "never seen to succeed"
    assert contract.operations() - refused - open_to_all == set(), "never seen to refuse a caller without a key"
