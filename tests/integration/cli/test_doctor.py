import json


def verdicts(result, what):
    return [c["verdict"] for c in json.loads(result.output) if c["what"] == what]


def test_a_usable_machine_passes(run, home):
    result = run("doctor", "--ranks", "2", "--set", "paths.shm_reserve_bytes=0", "--json")
    assert result.exit_code == 0, result.output
    assert verdicts(result, "redis") == ["ok"]
    assert "fail" not in {c["verdict"] for c in json.loads(result.output)}


def test_a_server_that_keeps_keys_passes_and_one_that_may_evict_is_refused(job, run, server):
    redis = ["--redis", server.url, "--redis-password-file", str(server.password_file)]
    assert verdicts(run("doctor", *redis, "--json"), "redis") == ["ok"]
    job.store._client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        result = run("doctor", *redis)
    finally:
        job.store._client.config_set("maxmemory-policy", "noeviction")
    assert result.exit_code == 1
    assert "maxmemory-policy allkeys-lru" in result.output


def test_a_server_that_is_not_there_fails_but_the_rest_is_still_looked_at(run):
    result = run("doctor", "--redis", "unix:///nowhere.sock", "--json")
    assert result.exit_code == 1
    assert verdicts(result, "redis") == ["fail"]
    assert verdicts(result, "python") == ["ok"]


def test_a_ladder_in_the_wrong_order_is_shown_and_fails(run):
    result = run("doctor", "--set", "sidecar.lease_s=0.1")
    assert result.exit_code == 1
    assert "does not hold: a healthy leader would lose its lease" in result.output


def test_a_collective_that_torch_gives_up_before_holdfast_judged_fails(run):
    result = run("doctor", "--group-timeout", "1m", "--set", "stall.act_after_s=120")
    assert result.exit_code == 1
    assert "NCCL's timeout for collectives = 60 s does not hold" in result.output
    assert run("doctor", "--grace", "20s").exit_code == 1
    assert run("doctor", "--grace", "soon").exit_code == 2


def test_an_unwritable_checkpoint_path_fails(run, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    result = run("doctor", "--set", f"checkpoint.dir={in_the_way}/below")
    assert result.exit_code == 1
    assert "can't write to the checkpoint path" in result.output


def test_a_word_nobody_knows_is_bad_input_even_here(run):
    assert run("doctor", "--set", "nope.nope=1").exit_code == 2
