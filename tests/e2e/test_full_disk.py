"""A disk that is full: writes are refused, reads go on, and all is well once there is room."""

import json
import resource

from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.relay_process import RelayProcess


def limit_files(relay: RelayProcess, size: int) -> None:
    """No file of the relay's may grow beyond this: what a full disk looks like to it."""
    _, most = resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (size, most))


def publish_all(client: RawClient, events: list[dict]) -> dict[str, tuple[bool, str]]:
    client.send_text(*(json.dumps(["EVENT", event]) for event in events))
    return {event["id"]: tuple(client.wait_for("OK", event["id"])[2:]) for event in events}


def test_with_a_full_disk_only_acknowledged_events_are_stored(tmp_path, connect, background):
    relay = RelayProcess(tmp_path / "data", **OPEN).start()
    try:
        client, author = connect(relay), Author()
        client.request("live", {"authors": [author.pubkey], "limit": 0})
        events = [author.event(f"{number} " + "x" * 20_000) for number in range(200)]
        answers = publish_all(client, events[:20])
        limit_files(relay, 2_000_000)
        answers |= publish_all(client, events[20:])

        fine = {event_id for event_id, (accepted, _) in answers.items() if accepted}
        assert 20 <= len(fine) < 200
        reasons = {reason.split(":")[0] for accepted, reason in answers.values() if not accepted}
        assert reasons == {"error"}
        stored = {event["id"] for event in connect(relay).ask({"authors": [author.pubkey]})}
        assert stored == fine

        limit_files(relay, resource.RLIM_INFINITY)
        again = publish_all(client, events)
        assert all(accepted for accepted, _ in again.values())
        while len({frame[2]["id"] for frame in client.inbox if frame[0] == "EVENT"}) < 200:
            client.inbox.append(client.receive())
        assert relay.stop() == 0
    finally:
        relay.kill()
    # Its log is full of complaints, and that is as it should be.
    assert "disk" in relay.log
