from __future__ import annotations

import pytest

from holdfast_sidecar.config.redaction import (
    REDACTED,
    Redaction,
    is_secret_name,
    known_secrets,
    redact,
    secrets_among,
)

SECRET = "s3cr3t-Va1ue"


@pytest.mark.parametrize(
    "text",
    [
        "password=" + SECRET,
        "PASSWORD: " + SECRET,
        "connecting with {'api_key': '" + SECRET + "', 'retries': 3}",
        '{"client_secret": "' + SECRET + '"}',
        "started as train.py --api-key " + SECRET + " --lr 0.1",
        "started as train.py --hf-token=" + SECRET,
        "export WANDB_API_KEY=" + SECRET,
        "aws_secret_access_key => " + SECRET,
        "Authorization: Bearer " + SECRET + "abcdef",
        "authorization: token " + SECRET,
        "sent bearer " + SECRET,
        "redis://:" + SECRET + "@redis.example:6379/0",
        "rediss://user:" + SECRET + "@redis.example",
        "postgresql://me:odd/" + SECRET + "@db/runs",
        "https://" + SECRET + "@github.com/a/b.git",
        "GET https://b.s3.example/k?X-Amz-Credential=" + SECRET + "&X-Amz-Date=2026",
        "https://blob.example/c?sv=2024&sig=" + SECRET + "&se=2027",
        "AccountName=x;AccountKey=" + SECRET + ";EndpointSuffix=y",
        "https://hooks.slack.com/services/T0/B0/" + SECRET,
        "Set-Cookie: session=" + SECRET,
        "-----BEGIN RSA PRIVATE KEY-----\n" + SECRET + "\n-----END RSA PRIVATE KEY-----",
        "s3cr3tVa1ues3cr3tVa1ue\n" * 2 + "-----END PRIVATE KEY-----",
        '{"body": "{\\"api_key\\": \\"' + SECRET + '\\"}"}',
        'b\'{\\\\"token\\\\":\\\\"' + SECRET + "\\\\\"}'",
    ],
)
def test_a_secret_is_known_by_its_name_or_by_where_it_stands(text: str) -> None:
    clean = redact(text)
    assert SECRET not in clean
    assert SECRET.replace("-", "") not in clean
    assert REDACTED in clean


@pytest.mark.parametrize(
    "token",
    [
        "AKIA" + "A1B2C3D4E5F6G7H8",
        "ghp_" + "a1" * 18,
        "hf_" + "aB3" * 11,
        "sk-proj-" + "x9" * 16,
        "xoxb-" + "123456789012-abc",
        "AIza" + "x_9" * 12,
        "glpat-" + "abcdefgh12345678",
        "eyJhbGciOi." + "eyJzdWIiOi." + "c2lnbmF0dXJl",
    ],
)
def test_a_token_is_known_by_its_looks(token: str) -> None:
    assert token not in redact(f"used {token} to log in")


@pytest.mark.parametrize(
    "text",
    [
        "step 12: loss 0.25, 4096 tokens, tokens_per_s: 12345",
        "tokenizer: gpt2, pad_token=<|endoftext|>, token_type_ids: [0, 1]",
        "max token: 512",
        "Missing key(s) in state_dict: layer.weight, key=value",
        "see https://docs.example.org/a/b?page=3#top",
        "connecting to tcp://10.0.0.7:29500",
        "--tokenizer gpt2 --save-path /data/run",
        "password_file = /etc/holdfast/redis-password",
        'File "/data/train.py", line 41 in load_batch',
        "rank 3 at 2026-11-20T17:18:27Z: gloo connection closed by peer [10.0.0.1]:1234",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_around_a_secret_everything_stays() -> None:
    clean = redact(f"redis://user:{SECRET}@redis.example:6379/0 answered in 3 ms")
    assert clean == f"redis://{REDACTED}@redis.example:6379/0 answered in 3 ms"
    assert redact(f"a=1 token={SECRET} b=2") == f"a=1 token={REDACTED} b=2"


def test_an_option_may_have_its_value_in_the_next_argument() -> None:
    given = ["train.py", "--api-key", SECRET, "--lr", "0.1", "--password=" + SECRET, "--dry-run"]
    shown = Redaction().command(given)
    assert shown == [
        "train.py",
        "--api-key",
        REDACTED,
        "--lr",
        "0.1",
        f"--password={REDACTED}",
        "--dry-run",
    ]
    assert Redaction().command(["x", "--ask-password", "--lr"]) == ["x", "--ask-password", "--lr"]


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        (
            f"postgres://user:{SECRET}@db/runs?sslmode=require",
            f"postgres://{REDACTED}@db/runs?sslmode=require",
        ),
        (f"Authorization: Basic {SECRET}==", f"Authorization: {REDACTED}={REDACTED}"),
        (f"--url=redis://:{SECRET}@h", f"--url=redis://{REDACTED}@h"),
        ("--max_tokens=4096", "--max_tokens=4096"),
    ],
)
def test_before_the_sign_of_an_argument_may_stand_a_secret_too(argument: str, shown: str) -> None:
    assert Redaction().command([argument]) == [shown]


def test_the_value_of_a_secret_variable_is_known_wherever_it_stands() -> None:
    variables = {"WANDB_API_KEY": SECRET, "HOME": "/root", "HOLDFAST_REDIS": f"redis://:{SECRET}@h"}
    redaction = Redaction(secrets_among(variables))
    assert redaction.text(f"oops, it is {SECRET}!") == f"oops, it is {REDACTED}!"
    assert redaction.environment(variables) == {
        "HOLDFAST_REDIS": f"redis://{REDACTED}@h",
        "HOME": "/root",
        "WANDB_API_KEY": REDACTED,
    }


@pytest.mark.parametrize(
    "secret", ["/x8Fk3Zq/9pT+w==", "~Tr0ub4dor&3", ".hidden-Va1ue", "//s3cr3t"]
)
def test_a_secret_that_begins_like_a_path_and_is_none_is_searched_for(secret: str) -> None:
    assert known_secrets([secret]) == {secret}


@pytest.mark.parametrize("path", ["/proc/self/x", "~/.netrc", "./token", "../keys/token"])
def test_a_path_is_no_secret(path: str) -> None:
    assert known_secrets([path]) == set()


def test_short_values_counts_and_paths_are_not_searched_for() -> None:
    assert known_secrets(["1", "true", "123456", "/tmp/secrets/x", SECRET]) == {SECRET}


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("WANDB_API_KEY", True),
        ("HF_TOKEN", True),
        ("PGPASSWORD", True),
        ("DB_PASS", True),
        ("SENTRY_DSN", True),
        ("SLACK_WEBHOOK_URL", True),
        ("MY_ENCRYPTION_KEY", True),
        ("AWS_SESSION_TOKEN", True),
        ("PWD", False),
        ("OLDPWD", False),
        ("HOLDFAST_REDIS_PASSWORD_FILE", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("MAX_TOKENS", False),
        ("SSH_AUTH_SOCK", False),
        ("signature", False),
    ],
)
def test_names_say_what_is_secret(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


def test_plain_data_is_cleaned_all_the_way_down() -> None:
    value = {"url": f"redis://:{SECRET}@h", "n": 3, "more": [{"token": SECRET}, None, (SECRET,)]}
    clean = Redaction(frozenset({SECRET})).plain(value)
    assert clean == {
        "url": f"redis://{REDACTED}@h",
        "n": 3,
        "more": [{"token": REDACTED}, None, [REDACTED]],
    }
