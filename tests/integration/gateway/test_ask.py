"""A person is asked about what no rule allows: lookups and SYNs wait, everything else goes on."""
import contextlib
import json
import socket
import threading
import time

import pytest

from netlab import GATEWAY_IP, Reply, build_query, lab, read_exactly

SERVER, OTHER = "45.80.0.10", "45.80.0.11"


class Person:
    """The supervisor's end of control, for somebody who reads questions and answers."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.events = []
        assert self.ask(op="ask", on=True) == {"done": True}

    def receive(self):
        return json.loads(self.gateway.control.recv(1 << 20))

    def ask(self, **message):
        self.gateway.control.send(json.dumps(message).encode())
        while True:
            answer = self.receive()
            if "asked" not in answer and "over" not in answer:
                return answer
            self.events.append(answer)

    def next(self, kind):
        """The next question, or the next that is over; others that come before it are kept."""
        while True:
            for event in self.events:
                if kind in event:
                    self.events.remove(event)
                    return event
            self.events.append(self.receive())

    def answer(self, question, allow):
        return self.ask(op="answer", id=question["asked"], allow=allow)


@pytest.fixture()
def net():
    with lab(allow=["www.example.org", "part.example.org:443"], deny=["ads.example.org", OTHER]) as it:
        it.add_address(SERVER)
        it.add_address(OTHER)
        it.dns.zone.update({n: [SERVER] for n in ("www.example.org", "new.example.org", "part.example.org", "ads.example.org")})
        for port in (80, 2222):
            it.serve(SERVER, port, lambda c: c.sendall(b"hello" + c.recv(100)))
        it.person = Person(it.gateway)
        yield it


@contextlib.contextmanager
def in_background(call):
    """call() on a thread; the result, or the error, is in the list once the block is left."""
    box = []

    def body():
        try:
            box.append(call())
        except OSError as error:
            box.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield box
    finally:
        thread.join()


def say_hello(net, address, port=2222):
    with net.connect(address, port, timeout=60) as s:
        s.sendall(b"\0")
        return read_exactly(s, 6)


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_a_name_that_is_allowed_once_resolves_connects_once_and_is_asked_about_again(net, tcp):
    with in_background(lambda: net.resolve("new.example.org", tcp=tcp, timeout=60)) as reply:
        question = net.person.next("asked")
        assert question["rule"] == "new.example.org" and question["text"] == "look up new.example.org"
        assert not [q for q in net.dns.log if q[0].startswith("new")], "nothing has left the host"
        assert net.resolve("www.example.org").addresses == [SERVER], "others are answered meanwhile"
        assert net.person.answer(question, True) == {"done": True}
    assert reply[0].addresses == [SERVER]
    assert net.person.next("over") == {"over": question["asked"]}
    assert say_hello(net, SERVER) == b"hello\0"


def test_once_is_one_connection_and_it_lives_on(net):
    with in_background(lambda: net.resolve("new.example.org", timeout=60)):
        net.person.answer(net.person.next("asked"), True)
    with net.connect(SERVER, 2222, timeout=60) as first:
        with in_background(lambda: net.connect(SERVER, 80, timeout=60)) as second:
            question = net.person.next("asked")
            assert question["rule"] == "new.example.org:80"
            net.person.answer(question, False)
        assert isinstance(second[0], ConnectionRefusedError)
        first.sendall(b"\0")
        assert read_exactly(first, 6) == b"hello\0"


def test_a_name_that_is_denied_is_refused_with_words_and_not_asked_again_at_once(net):
    with in_background(lambda: net.resolve("new.example.org", timeout=60)) as reply:
        net.person.answer(net.person.next("asked"), False)
    assert reply[0].rcode == 3 and "asked about, and not allowed" in reply[0].ede[1]
    assert net.resolve("new.example.org").rcode == 3
    assert net.person.ask(op="stats")["questions"] == 0 and net.person.events == [{"over": 1}]


def test_a_deny_rule_is_not_asked_about(net):
    assert net.resolve("ads.example.org").rcode == 3
    with pytest.raises(ConnectionRefusedError):
        net.connect(OTHER, 80)
    assert net.person.ask(op="stats")["questions"] == 0 and net.person.events == []


def test_a_held_syn_that_is_sent_again_is_one_question_and_one_connection(net):
    with in_background(lambda: say_hello(net, SERVER)) as heard:
        question = net.person.next("asked")
        assert question["rule"] == f"{SERVER}:2222"
        time.sleep(3.5)  # the kernel sends its SYN again after 1 and after 3 s: that is what is tested
        assert net.person.ask(op="stats")["questions"] == 1
        net.person.answer(question, True)
    assert heard[0] == b"hello\0"
    assert net.person.events == [{"over": question["asked"]}]
    assert net.servers[-1].accepted == 1


def test_equal_questions_are_one_and_all_who_wait_are_served(net):
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(in_background(lambda: net.resolve("new.example.org", timeout=60))) for _ in range(10)]
        question = net.person.next("asked")
        end = time.monotonic() + 10
        while net.person.ask(op="stats")["questions"] != 1 and time.monotonic() < end:
            time.sleep(0.05)
        net.person.answer(question, True)
        # One that came after the answer finds the grant; none asks again.
    assert [box[0].addresses for box in boxes] == [[SERVER]] * 10
    assert [e for e in net.person.events if "asked" in e] == []


def test_a_rule_that_is_added_answers_the_question_for_good(net):
    with in_background(lambda: net.resolve("new.example.org", timeout=60)) as reply:
        question = net.person.next("asked")
        assert net.person.ask(op="policy", allow=["new.example.org"], deny=[]) == {"done": True}
        assert net.person.next("over") == {"over": question["asked"]}
    assert reply[0].addresses == [SERVER]
    for _ in range(2):
        assert say_hello(net, SERVER) == b"hello\0"


def test_a_flood_of_names_is_bounded_and_the_rest_is_refused_at_once_and_recorded(net):
    with net.guest.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(10)
        s.connect((GATEWAY_IP, 53))
        for number in range(100):
            s.send(build_query(f"n{number}.flood.example.net", ident=number))
        refused = {Reply(s.recv(4096)).ident for _ in range(68)}
        assert len(refused) == 68 and net.person.ask(op="stats")["questions"] == 32
        assert net.resolve("www.example.org").addresses == [SERVER]
        # With nobody left to ask, those that wait are refused at once.
        assert net.person.ask(op="ask", on=False) == {"done": True}
        refused |= {Reply(s.recv(4096)).ident for _ in range(32)}
        assert refused == set(range(100))
    end = time.monotonic() + 10
    while len({tuple(r["names"]) for r in net.gateway.find(proto="dns", reason="no-allow-rule")}) < 100:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_anybody_to_ask_a_refusal_is_at_once(net):
    net.person.ask(op="ask", on=False)
    assert net.resolve("new.example.org").rcode == 3
    with pytest.raises(ConnectionRefusedError):
        net.connect(SERVER, 2222, timeout=5)
