"""The ways to GitHub: addresses, proxies, certificates, by the environment's usual variables."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernelopt_bot.cli.phases import take_app_token, workflow
from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.github import GitHub, GitHubForge
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.shown import comment
from tests.github_stand_in import TOKEN, Hub, Repo
from tests.publish.conftest import client, publication


def test_through_a_proxy(hub: Hub, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the proxy knows the host."""
    monkeypatch.setenv("http_proxy", hub.url)
    forge = GitHubForge("acme/kernels", TOKEN, base_url="http://github.invalid", seconds_between_writes=None)
    assert forge.publish(publication(repo.sha("faster-models"))).operation == "created"


def test_a_proxy_is_passed_by_where_no_proxy_says_so(hub: Hub, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    github = GitHub("acme/kernels", TOKEN, base_url=hub.url, attempts=1)
    with pytest.raises(UserError, match="can't be reached"):
        github.request("GET", "")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert github.request("GET", "")["full_name"] == "acme/kernels"


def test_links_lead_to_the_enterprises_own_server() -> None:
    here = workflow({"GITHUB_REPOSITORY": "acme/kernels", "GITHUB_RUN_ID": "7",
                     "GITHUB_SERVER_URL": "https://ghe.example:8443"})
    assert here.url == "https://ghe.example:8443/acme/kernels/actions/runs/7"
    assert f"[workflow run]({here.url})" in comment(Seen("queued", "b" * 40, run_url=here.url))
    assert (here.login, here.writer) == ("github-actions[bot]", "")


def test_an_apps_token_is_taken_out_of_the_environment_and_masked(monkeypatch: pytest.MonkeyPatch,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("KERNELOPT_APP_TOKEN", "ghs_secret")
    assert take_app_token() == "ghs_secret" and "KERNELOPT_APP_TOKEN" not in os.environ
    assert "::add-mask::ghs_secret" in capsys.readouterr().err
    assert take_app_token() == ""
    here = workflow({"GITHUB_REPOSITORY": "acme/kernels", "KERNELOPT_APP_SLUG": "acme-perf"})
    assert (here.login, here.writer) == ("github-actions[bot]", "acme-perf[bot]")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate that nobody trusts by default."""
    both = tmp_path_factory.mktemp("tls") / "both.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "-", *names],
        check=True,
        capture_output=True,
    )
    both.write_bytes(made.stdout)
    return both


def test_an_enterprises_certificate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    seen: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        monkeypatch.setenv("GITHUB_API_URL", f"https://localhost:{server.server_port}/api/v3")
        with pytest.raises(UserError, match="SSLError") as e:
            GitHub("acme/kernels", TOKEN, attempts=1).request("GET", "labels")
        assert "certificates" in e.value.fix
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert GitHub("acme/kernels", TOKEN, attempts=1).request("GET", "labels") == {}
        assert seen == ["/api/v3/repos/acme/kernels/labels"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_certificate_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(UserError, match=r"/nowhere/ca\.pem"):
        GitHub("acme/kernels", TOKEN, base_url="https://localhost:9", attempts=1).request("GET", "")


def test_long_lists_are_read_to_their_end(hub: Hub, repo: Repo) -> None:
    forge = client(hub)
    forge.publish(publication(repo.sha("faster-models")))
    number = 1
    for i in range(101):
        forge.github.request("POST", f"issues/{number}/comments", {"body": f"{i}"}, repeatable=True)
    assert len(forge.github.pages(f"issues/{number}/comments")) == 101
    assert len(forge.github.pages(f"issues/{number}/comments", limit=100)) == 100
