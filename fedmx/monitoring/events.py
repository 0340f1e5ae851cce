"""The events of the log: for the text of each log line, its name and the names of its fields.

The line that a person reads and the object that a program reads come from the same call: the text
of that call stands here. A test holds that each text has its name.
"""

from __future__ import annotations

from collections.abc import Mapping

EVENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    # a server
    "listening on %s": ("listening", ("address",)),
    "metrics at http://%s/metrics": ("metrics_listening", ("address",)),
    "client %d %s with %d samples": ("client_ready", ("client", "how", "samples")),
    "client %d had %d samples before": ("client_samples_changed", ("client", "samples")),
    "client %d left: %s": ("client_left", ("client", "reason")),
    "client %d is not back; going on without it": ("client_given_up", ("client",)),
    "client %d, round %d: %s": ("client_failed", ("client", "round", "reason")),
    "client %d: %s": ("client_out_of_place", ("client", "what")),
    "client %d: %s; it is given up": ("client_silent", ("client", "reason")),
    "… and %s more lines about %s": ("lines_left_out", ("lines", "who")),
    "there is room for clients again": ("room_again", ()),
    "%s: %s": ("rejected", ("who", "reason")),
    "waiting for clients: %d of %d are ready": ("waiting_for_clients", ("ready", "needed")),
    "waiting for clients: %d of %d are ready; missing: %s": (
        "waiting_for_clients",
        ("ready", "needed", "missing"),
    ),
    "waiting for the answers of clients %s %s": ("waiting_for_answers", ("clients", "since")),
    "round %d: waiting for clients %s %s": ("waiting_for_updates", ("round", "clients", "since")),
    "round %d: %s": ("round_stepped_back", ("round", "reason")),
    "%s: cannot write the status (%s)": ("status_not_written", ("path", "reason")),
    # either end
    "the %s was read again and is used from now on": ("certificates_renewed", ("what",)),
    "%s; the one from before stays in use": ("certificates_refused", ("reason",)),
    "the run goes on without the callback %s": ("callback_missing", ("callbacks",)),
    "callback %s: %s": ("callback_failed", ("callback", "reason")),
    # a client
    "connected to %s": ("connected", ("address",)),
    "disconnected: %s; reconnecting": ("disconnected", ("reason",)),
    "%s; trying again in %.1f s": ("retrying", ("reason", "delay_s")),
    "round %d: made an update of %d steps": ("update_made", ("round", "steps")),
    "ignored a %s before the setup": ("message_ignored", ("message",)),
    "waiting for the asset %s, %d bytes": ("waiting_for_asset", ("asset", "size_bytes")),
    "the survey %r failed": ("survey_failed", ("survey",)),
    "round %d has ended already": ("round_over", ("round",)),
    "round %d failed": ("training_failed", ("round",)),
    "round %d: the update was declined": ("update_declined", ("round",)),
    "disconnected; the server will ask again when this client reconnects": (
        "answer_not_sent",
        (),
    ),
    "not connected; the server will ask again when this client reconnects": (
        "answer_not_sent",
        (),
    ),
    # a simulation's workers
    "%s %s; another replaces it": ("worker_replaced", ("who", "how")),
    "%s %s (job: %s); another worker repeats it": ("job_repeated", ("who", "how", "job")),
    "no worker has a core of the Ray cluster yet, which has %g cores, %g of them free": (
        "waiting_for_cores",
        ("cores", "free"),
    ),
    # a run that goes on
    "%s: %s are lost; the run goes on without them%s": (
        "records_lost",
        ("run", "records", "chain"),
    ),
    "%s: %s are lost; the run goes on after round %d, with them": (
        "records_made_again",
        ("run", "records", "after"),
    ),
    "%s; no step back leads to the begin of the fork": ("fork_begin_lost", ("reason",)),
    # a replay
    "%s: %s has other samples here than in the run": ("other_data", ("run", "data")),
    "%s: %s: not as in the run": ("other_code", ("run", "files")),
    "%s: other bits are possible here: %s": ("other_bits_possible", ("run", "differences")),
    "%s: run again, round %d ended in another model": ("other_model", ("run", "round")),
    # a part of the logic
    "%s; is it meant so?": ("part_doubtful", ("what",)),
    # any
    "%s": ("note", ("text",)),
}
