"""The section `agents`: what holds for a role, and what is refused."""

from __future__ import annotations

import pytest

from kernelopt_bot.agents.settings import ROLES, Agents
from kernelopt_bot.config import Config, parse
from kernelopt_bot.errors import InputError


def test_by_default_no_model_is_asked_and_no_source_is_sent() -> None:
    agents = Config().agents
    assert (agents.model, agents.send_source) == ("", False)
    assert all(agents.of(role).model == "" for role in ROLES)


def test_a_role_overrides_only_what_it_gives() -> None:
    agents = parse("""\
agents:
  model: small
  temperature: 0.5
  effort: low
  roles:
    executor: {model: large, temperature: 0, effort: high, max_output_tokens: 999}
""", "x.yml").config.agents
    executor, planner = agents.of("executor"), agents.of("planner")
    assert (executor.model, executor.temperature, executor.effort, executor.max_output_tokens) == (
        "large", 0.0, "high", 999)
    assert (planner.model, planner.temperature, planner.effort, planner.max_output_tokens) == (
        "small", 0.5, "low", 16_384)


def test_money_is_limited_only_where_every_model_has_a_price() -> None:
    text = "agents:\n  model: small\n  limits: {money_usd: 1}\n  roles: {fuser: {model: large}}\n"
    with pytest.raises(InputError, match="no entry for the model large"):
        parse(text + "  prices: [{model: small, input: 1, output: 2}]\n", "x.yml")
    parse(text + "  prices: [{model: small, input: 1, output: 2}, {model: large, input: 1, output: 2}]\n", "x.yml")
    with pytest.raises(InputError, match="more than one price"):
        parse("agents: {prices: [{model: a, input: 1, output: 1}, {model: a, input: 2, output: 1}]}\n", "x.yml")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "https://", "https://u:p@h/v1", "https://h/v1?k=1", "h/v1"])
def test_an_address_holds_no_secret_and_is_one(address: str) -> None:
    with pytest.raises(InputError, match="base_url"):
        parse(f"agents: {{base_url: '{address}'}}\n", "x.yml")


def test_the_address_ends_without_a_slash() -> None:
    assert Agents(base_url="http://127.0.0.1:8080/v1/").base_url == "http://127.0.0.1:8080/v1"


def test_a_mistake_deep_inside_names_its_line_and_the_right_key() -> None:
    with pytest.raises(InputError) as caught:
        parse("agents:\n  roles:\n    executor:\n      efort: high\n", "x.yml")
    assert caught.value.where == "x.yml:4"
    assert 'did you mean "effort"?' in caught.value.fix
