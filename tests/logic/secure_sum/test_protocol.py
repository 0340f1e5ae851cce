"""One sum from end to end, with the numbers of the vectors and with clients that are lost."""

from __future__ import annotations

import hmac
from dataclasses import replace

import numpy as np
import pytest

from layers.logic.secure_sum.opening import CannotOpen, accused
from layers.logic.secure_sum.peer import Peer
from layers.logic.secure_sum.roster import Roster, SumRefused
from layers.logic.secure_sum.whole_numbers import dequantised, quantised
from tests.logic.secure_sum.protocol import Sum, given_bytes, peers, rows, with_graph
from tests.logic.vector_files import vectors

WORDS = 5


def words_of(client: int) -> np.ndarray:
    return np.arange(client, client + WORDS, dtype=np.uint32) ** 2


def a_sum(number: int = 6, **settings) -> Sum:
    return Sum(peers(range(number)), **settings)


def sum_of(sent) -> np.ndarray:
    return np.sum(list(sent.values()), axis=0, dtype=np.uint32)


def masked(one: Sum, clients) -> dict[int, np.ndarray]:
    return {client: one.peers[client].masked(words_of(client)) for client in clients}


def test_the_runs_of_the_vectors_with_their_dropouts() -> None:
    for row in vectors("secagg")["protocol"]:
        secrets = [
            [bytes.fromhex(row[name][client]) for name in ("private", "self_seed")]
            for client in range(row["clients"])
        ]
        made = {}
        for client, (private, seed) in enumerate(secrets):
            others = [bytes([client + 1]) * 32, bytes([client + 101]) * 32]
            made[client] = Peer(
                client, 1, "malicious", secret_bytes=given_bytes(private, *others, seed)
            )
            assert made[client].public[:32].hex() == row["public"][client]

        def graph(client, roster, row=row):
            return with_graph(roster, row["neighbours"], row["threshold"])

        one = Sum(made, change=graph)
        one.share(row["sharing"])
        one.forward()
        values = [np.array(found) for found in row["values"]]
        whole = [quantised(found, row["clip"], row["bits"]) for found in values]
        assert [found.tolist() for found in whole] == row["quantised"]
        sent = {client: made[client].masked(whole[client]) for client in row["uploaded"]}
        assert {str(client): found.tolist() for client, found in sent.items()} == row["masked"]
        lost = set(row["sharing"]) - set(row["uploaded"])
        assert lost == set(row["revealed"]["private_keys_of"])
        tells = {client: secrets[client][client in sent] for client in row["sharing"]}
        total = one.opening(sent).unmasked(sum_of(sent), tells)
        assert total.tolist() == row["unmasked_sum"]
        if row["degree"] == row["clients"] - 1:  # of the other run, too few are left for shares
            opened = one.opened(sent, one.told(row["uploaded"]))
            assert opened.tolist() == row["unmasked_sum"]
        found = dequantised(total.astype(np.int64), len(sent), row["clip"], row["bits"])
        np.testing.assert_allclose(found, row["dequantised_sum"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("server", ["malicious", "honest"])
@pytest.mark.parametrize("phase", ["shares", "words", "opening"])
@pytest.mark.parametrize(("number", "lost"), [(3, 0), (4, 1), (9, 3), (20, 6), (110, 3)])
def test_the_sum_of_those_that_are_left_opens_and_no_words_are_plain(
    number, lost, phase, server
) -> None:
    one, left = Sum(peers(range(number), server), server), range(lost, number)
    one.share(left if phase == "shares" else None)
    one.forward()
    there = [client for client in one.boxes if phase != "words" or client in left]
    sent = masked(one, there)
    for client, found in sent.items():
        assert (found != words_of(client)).all()
    told = one.told(there, left if phase == "opening" else None)
    assert one.opened(sent, told).tolist() == sum(map(words_of, there)).tolist()


def test_fewer_shares_than_the_threshold_open_nothing() -> None:
    one = a_sum(9)
    one.share()
    one.forward()
    there = list(range(9))
    sent, threshold = masked(one, there), one.roster.degree.threshold
    told = one.told(there)
    few = {client: told[client] for client in there[: threshold - 1]}
    with pytest.raises(CannotOpen, match=f"{threshold} are needed"):
        one.opened(sent, few)


def test_a_client_tells_one_secret_of_each_neighbour_and_never_both() -> None:
    one = a_sum()
    one.share()
    one.forward()
    first, second = (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)
    one.told(first)
    told = one.told(first)[0]
    assert list(map(any, rows(told, 33))) == [True] * 5, "the same answer to the same list"
    with pytest.raises(SumRefused, match="twice"):
        one.peers[0].confirm(second)
    with pytest.raises(SumRefused, match="twice"):
        one.peers[0].open(second, {})


def test_a_server_that_tells_two_lists_of_survivors_learns_no_share() -> None:
    one = a_sum()
    one.share()
    one.forward()
    everybody, fewer = tuple(range(6)), (0, 1, 2, 3, 4)
    signed = {
        client: one.peers[client].confirm(everybody if client < 3 else fewer)
        for client in (0, 1, 2, 3, 4)
    }
    with pytest.raises(SumRefused, match="2 neighbours have signed"):
        one.peers[0].open(everybody, signed)
    with pytest.raises(SumRefused, match="1 neighbours have signed"):
        one.peers[3].open(fewer, signed)


def test_a_server_that_shows_two_rosters_separates_those_who_see_them() -> None:
    other = peers([5])[5]

    def change(client: int, roster: Roster) -> Roster:
        if client not in (0, 1):
            return roster
        return replace(roster, public={**roster.public, 5: other.public})

    one = a_sum(change=change)
    one.share([0, 1, 2, 3, 4])
    with pytest.raises(SumRefused, match="1 neighbours have sent"):
        one.peers[0].receive(one.for_client(0))


def test_a_server_that_swaps_the_keys_of_a_client_is_refused_by_that_client() -> None:
    other = peers([5])[5]

    def change(client: int, roster: Roster) -> Roster:
        return replace(roster, public={**roster.public, 5: other.public})

    one = a_sum(change=change)
    with pytest.raises(SumRefused, match="other keys than those of client 5"):
        one.peers[5].share(one.roster)


def test_a_server_that_asks_for_a_sum_of_an_earlier_round_is_refused() -> None:
    one = a_sum()
    with pytest.raises(SumRefused, match="other keys"):
        one.peers[0].share(replace(one.roster, round=2))
    later = peers(range(6))
    with pytest.raises(SumRefused, match="other keys"):
        later[0].share(one.roster)
    one.share()
    later_sum = Sum(later)
    later_sum.share()
    later_sum.boxes |= one.boxes  # what was sealed in the earlier sum
    with pytest.raises(SumRefused, match="0 neighbours have sent"):
        later[0].receive(later_sum.for_client(0))


def test_a_server_cannot_have_two_tasks_masked_with_the_same_masks() -> None:
    one = a_sum()
    one.share()
    one.forward()
    first = one.peers[0].masked(words_of(0))
    np.testing.assert_array_equal(one.peers[0].masked(words_of(0)), first)
    with pytest.raises(SumRefused, match="twice"):
        one.peers[0].masked(words_of(1))


@pytest.mark.parametrize("survivors", [(1, 2, 3), (0, 1, 9), (0, 2, 1), (0, 1, 1), (0,)])
def test_a_list_of_survivors_that_cannot_be_right_is_not_signed(survivors) -> None:
    one = a_sum()
    one.share()
    one.forward()
    with pytest.raises(SumRefused):
        one.peers[0].confirm(survivors)


def test_wrong_shares_of_one_client_are_replaced_by_those_of_others() -> None:
    one = a_sum()
    one.share()
    one.forward()
    there = list(range(6))
    sent, told = masked(one, there), one.told(there)
    told[2] = bytes([7]) * len(told[2])
    assert one.opened(sent, told).tolist() == sum(map(words_of, there)).tolist()
    told |= {client: bytes(len(told[client])) for client in (3, 4, 5)}
    with pytest.raises(CannotOpen, match="not of the seed of client 0"):
        one.opened(sent, told)


def test_who_sends_shares_that_nobody_can_read_is_left_out_and_not_those_that_say_so() -> None:
    one = a_sum()
    one.share()
    one.boxes[3] = {other: bytes(len(box)) for other, box in one.boxes[3].items()}
    one.forward()
    out = accused(one.unreadable)
    assert out == [3]
    there = [0, 1, 2, 4, 5]
    sent = masked(one, there)
    assert one.opened(sent, one.told(there)).tolist() == sum(map(words_of, there)).tolist()


def test_of_two_that_contradict_each_other_the_one_that_says_so_is_left_out() -> None:
    assert accused({1: [2], 2: []}) == [1]
    assert accused({1: [2], 3: [2], 4: []}) == [2]
    assert accused({}) == []


class Signed:
    """A client's identity, with keys in place of certificates; client k's name is its number."""

    def __init__(self, client: int) -> None:
        self.client = client

    def sign(self, content: bytes) -> bytes:
        return hmac.digest(b"%d" % self.client, content, "sha256")

    def verify(self, client: int, proof: bytes, content: bytes) -> None:
        if proof != Signed(client).sign(content):
            raise ValueError("another signature")


def test_a_neighbour_whose_keys_are_not_signed_gets_no_shares() -> None:
    identities = {client: Signed(client if client != 3 else 2) for client in range(6)}
    one = Sum(peers(range(6), identities=identities))
    sealed, refused = one.peers[0].share(one.roster)
    assert refused == [3]
    assert list(map(any, rows(sealed, 82))) == [True, True, False, True, True]
    one.share()
    assert 3 not in one.for_client(0)
    one.boxes[3] = {}
    one.forward_to([0, 1, 2, 4, 5])
    there = [0, 1, 2, 4, 5]
    assert (
        one.opened(masked(one, there), one.told(there)).tolist()
        == sum(map(words_of, there)).tolist()
    )


@pytest.mark.parametrize("which", [0, 1])
def test_a_neighbour_whose_key_is_none_gets_no_shares(which) -> None:
    one = a_sum()
    public = one.peers[3].public
    start = 32 * which
    one.peers[3].public = public[:start] + bytes(32) + public[start + 32 :]
    _, refused = one.peers[0].share(one.roster)
    assert refused == [3]


def test_a_client_takes_part_in_no_sum_of_fewer_clients_than_it_wants() -> None:
    few = {one: Peer(one, 1, "malicious", min_clients=7) for one in range(6)}
    with pytest.raises(SumRefused, match="a sum of 6 clients, and 7 are needed"):
        few[0].share(Sum(few).roster)
    one = Sum({one: Peer(one, 1, "malicious", min_clients=6) for one in range(6)})
    one.share()
    one.forward()
    with pytest.raises(SumRefused, match="a sum of 5 clients, and 6 are needed"):
        one.peers[0].confirm((0, 1, 2, 3, 4))


def test_with_too_few_signed_keys_a_client_shares_with_nobody() -> None:
    identities = {client: Signed(0) for client in range(6)}
    one = Sum(peers(range(6), identities=identities))
    with pytest.raises(SumRefused, match="0 neighbours have signed their keys, and 3 are needed"):
        one.peers[0].share(one.roster)


def test_an_honest_server_costs_no_signature_of_neighbours() -> None:
    identities = {client: Signed(0) for client in range(6)}
    one = Sum(peers(range(6), "honest", identities), "honest")
    assert one.peers[0].share(one.roster)[1] == []
