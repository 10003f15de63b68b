"""Terms look as Erlang's `~p` shows them; the expected texts are Erlang's own."""

from typing import Any

import pytest

from warrenmq.cli.control.formats.erlang import row_term
from warrenmq.cli.control.formats.erlang_terms import Atom, term_lines

PEM = "-----BEGIN CERTIFICATE-----\nMIIBfDCCASOgAwIBAgIUOGlixX2F8OzVkPnT1u4V2WnQ8M8wCgYIKoZIzj0EAwIw\n"
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TERMS: dict[str, Any] = {
    r'[[{name,<<"orders">>},{messages,0}],[{name,<<"a \"quoted\"">>},{messages,12}]]': [
        [(Atom("name"), "orders"), (Atom("messages"), 0)],
        [(Atom("name"), 'a "quoted"'), (Atom("messages"), 12)],
    ],
    """#{cacertfile =>
      <<"PEM">>,
  interface => <<"127.0.0.1">>,node => 'warren-1@localhost',port => 35671,
  protocol => 'amqp/ssl',purpose => <<"AMQP over TLS">>}""".replace("PEM", PEM.replace("\n", "\\n")): {
        Atom("cacertfile"): PEM,
        Atom("interface"): "127.0.0.1",
        Atom("node"): Atom("warren-1@localhost"),
        Atom("port"): 35671,
        Atom("protocol"): Atom("amqp/ssl"),
        Atom("purpose"): "AMQP over TLS",
    },
    """[{arguments,
     [{<<"list">>,array,[{signedint,1},{longstr,<<"two">>}]},
      {<<"table">>,table,[{<<"inner">>,longstr,<<"v">>}]}]},
 {a_tag_that_is_so_long_that_nothing_fits_beside_it,
     [{one,<<"abcdefghijklmnopqrstuvwxyz">>},
      {two,<<"abcdefghijklmnopqrstuvwxyz">>}]}]""": [
        *row_term(("arguments",), [{"list": [1, "two"], "table": {"inner": "v"}}]),
        (
            Atom("a_tag_that_is_so_long_that_nothing_fits_beside_it"),
            [(Atom("one"), ALPHABET), (Atom("two"), ALPHABET)],
        ),
    ],
    """[<<195,159,195,159,195,159,195,159,195,159,195,159,195,159,195,159,195,159,195,
   159,195,159>>,
 <<>>,true,undefined,'','end','Up',
 {127,0,0,1},
 0.25,[],{}]""": [
        "ß" * 11, "", True, None, Atom(""), Atom("end"), Atom("Up"), (127, 0, 0, 1), 0.25, [], (),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "term"), TERMS.items())
def test_terms_are_laid_out_as_erlang_does(text: str, term: Any) -> None:
    assert term_lines(term) == text


def test_rows_have_the_types_that_rabbitmq_has() -> None:
    columns = ("name", "type", "peer_host", "protocol", "pid", "policy", "tags", "ssl", "port")
    row = ["q", "classic", "127.0.0.1", "{0,9,1}", "<warren@host.1.7.0>", None, ["a"], False, 5672]
    shown = term_lines(row_term(columns, row)).replace("\n", "").replace(" ", "")
    assert shown == (
        '[{name,<<"q">>},{type,classic},{peer_host,{127,0,0,1}},{protocol,{0,9,1}},'
        "{pid,<warren@host.1.7.0>},{policy,''},{tags,[a]},{ssl,false},{port,5672}]"
    )
