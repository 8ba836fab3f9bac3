"""The Lua scripts of the Redis store: each is one atomic step. Command set: Redis 7.0.

A script names all its keys in KEYS, so that a cluster and an ACL can judge it. Time is the
server's: a lease ends when its key expires.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

from holdfast_sidecar.coordination.keys import RUNNING_TTL_S


@dataclass(frozen=True)
class Script:
    """A script and the digest by which a server that has seen it finds it."""

    text: str

    @functools.cached_property
    def digest(self) -> str:
        """SHA-1 in hex, as EVALSHA wants it."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A key must not stay for ever when its writer dies before anyone refreshed the lifetimes, and a
# write must not lengthen the life of an ended job's key: so only a key without a lifetime gets one.
_MORTAL = f"""
local function mortal(key)
  if redis.call('PTTL', key) == -1 then redis.call('EXPIRE', key, {RUNNING_TTL_S}) end
end
"""

CAMPAIGN = Script(
    _MORTAL
    + """
-- KEYS: leader, epoch, channel. ARGV: candidate, lease in ms, floor, whose lease counts as free.
local floor = tonumber(ARGV[3])
local held = redis.call('GET', KEYS[1])
if held then
  local epoch, holder = string.match(held, '^(%d+) (.*)$')
  if holder ~= ARGV[1] and holder ~= ARGV[4] then return held end
  if holder == ARGV[1] and tonumber(epoch) >= floor then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return held
  end
end
local highest = tonumber(redis.call('GET', KEYS[2]) or '0')
local taken = string.format('%.0f', math.max(highest, floor) + 1)
redis.call('SET', KEYS[2], taken, 'KEEPTTL')
mortal(KEYS[2])
redis.call('SET', KEYS[1], taken .. ' ' .. ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', KEYS[3], '')
return taken .. ' ' .. ARGV[1]
"""
)

RESIGN = Script(
    """
-- KEYS: leader, channel. ARGV: candidate.
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%d+ (.*)$') == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '')
end
"""
)

REPORT = Script(
    _MORTAL
    + """
-- KEYS: section, channel (absent: wake nobody). ARGV: field, value (absent: remove the field).
if ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  mortal(KEYS[1])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
if KEYS[2] then redis.call('PUBLISH', KEYS[2], '') end
"""
)

CLAIM = Script(
    _MORTAL
    + """
-- KEYS: section, channel. ARGV: field, value, '=' and the expected value or '' for absent.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if (held and '=' .. held or '') ~= ARGV[3] then return held end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
mortal(KEYS[1])
redis.call('PUBLISH', KEYS[2], '')
return ARGV[2]
"""
)

ORDER = Script(
    _MORTAL
    + """
-- KEYS: leader, section, channel.
-- ARGV: lease, field, '=' and the expected value or '' for absent, '=' and the value or ''.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local held = redis.call('HGET', KEYS[2], ARGV[2])
if (held and '=' .. held or '') ~= ARGV[3] then return 0 end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
else
  redis.call('HSET', KEYS[2], ARGV[2], string.sub(ARGV[4], 2))
  mortal(KEYS[2])
end
redis.call('PUBLISH', KEYS[3], '')
return 1
"""
)

READ = Script(
    """
-- KEYS: leader, sections. Answers the lease, the server's identity, then each section's fields.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local run = string.match(info, 'run_id:(%x+)') or ''
local history = string.match(info, 'master_replid:(%x+)') or ''
local answer = {redis.call('GET', KEYS[1]) or '', run .. ':' .. history}
for index = 2, #KEYS do answer[index + 1] = redis.call('HGETALL', KEYS[index]) end
return answer
"""
)
