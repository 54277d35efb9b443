from __future__ import annotations

import pytest

from mcplumb.protocol.oauth.steps import Answer, Redirect, Visit, form_post, get_json, hidden

SECRET = "c0ffee-secret"


@pytest.mark.req("AUT-8")
def test_no_step_shows_a_secret() -> None:
    steps = [
        form_post("https://auth.example/token", "a token request", {"code": SECRET}, {"authorization": SECRET}),
        Answer(200, SECRET.encode(), 0.0, {"dpop-nonce": SECRET}),
        Visit(f"https://auth.example/authorize?state={SECRET}", "http://127.0.0.1/"),
        Redirect(f"http://127.0.0.1/?code={SECRET}", 0.0),
    ]
    for step in steps:
        assert SECRET not in repr(step)
        assert SECRET not in f"{step} {[step]}"


def test_requests() -> None:
    assert get_json("https://a.example", "x").headers == {"accept": "application/json"}
    post = form_post("https://a.example", "x", {"a": "b c", "d": "&"})
    assert (post.method, post.body) == ("POST", b"a=b+c&d=%26")
    assert post.headers["content-type"] == "application/x-www-form-urlencoded"


def test_hidden() -> None:
    assert (hidden(None), hidden("x")) == ("None", "'…'")
