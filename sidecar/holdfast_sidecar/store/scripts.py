"""The Lua scripts of the Redis store: each is one atomic step. Command set: Redis 7.0.

A script names all its keys in KEYS, so that a cluster and an ACL can judge it. Time is the
server's: a lease ends when its key expires.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

from holdfast_sidecar.records.account import PENDING, TIMED, Category
from holdfast_sidecar.store.account import TURNS, UNSEEN_AFTER_US
from holdfast_sidecar.store.protocol import RUNNING_TTL_S


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

_CAMPAIGN = """
local function campaign(leader, epochs, channel, candidate, lease_ms, least, deposed)
  local floor = tonumber(least)
  local held = redis.call('GET', leader)
  if held then
    local epoch, holder = string.match(held, '^(%d+) (.*)$')
    if holder ~= candidate and holder ~= deposed then return held end
    if holder == candidate and tonumber(epoch) >= floor then
      redis.call('PEXPIRE', leader, lease_ms)
      return held
    end
  end
  local highest = tonumber(redis.call('GET', epochs) or '0')
  local taken = string.format('%.0f', math.max(highest, floor) + 1)
  redis.call('SET', epochs, taken, 'KEEPTTL')
  mortal(epochs)
  redis.call('SET', leader, taken .. ' ' .. candidate, 'PX', lease_ms)
  redis.call('PUBLISH', channel, '')
  return taken .. ' ' .. candidate
end
"""

_REPORT = """
local function report(section, channel, field, value)
  if value then
    redis.call('HSET', section, field, value)
    mortal(section)
  else
    redis.call('HDEL', section, field)
  end
  if channel then redis.call('PUBLISH', channel, '') end
end
"""

_READ = """
local function read(first)
  local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
  local run = string.match(info, 'run_id:(%x+)') or ''
  local history = string.match(info, 'master_replid:(%x+)') or ''
  local answer = {redis.call('GET', KEYS[1]) or '', run .. ':' .. history}
  for index = first, #KEYS do answer[#answer + 1] = redis.call('HGETALL', KEYS[index]) end
  return answer
end
"""

CAMPAIGN = Script(
    _MORTAL
    + _CAMPAIGN
    + """
-- KEYS: leader, epoch, channel. ARGV: candidate, lease in ms, floor, whose lease counts as free.
return campaign(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
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
    + _REPORT
    + """
-- KEYS: section, channel (absent: wake nobody). ARGV: field, value (absent: remove the field).
report(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
"""
)

_IS_ANOTHERS = """
local function is_anothers(held, incarnations)
  local holder = held and string.match(held, '"incarnation":"([^"]*)"')
  return holder and not string.find(incarnations, ' ' .. holder .. ' ', 1, true)
end
"""

REPORT_AS = Script(
    _MORTAL
    + _REPORT
    + _IS_ANOTHERS
    + """
-- KEYS: section, channel (absent: wake nobody). ARGV: field, value, whose report may be replaced,
-- each incarnation between blanks. Answers the report that is in the way, nothing when it was done.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if is_anothers(held, ARGV[3]) then return held end
report(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
return false
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
    _READ
    + """
-- KEYS: leader, sections. Answers the lease, the server's identity, then each section's fields.
return read(2)
"""
)

EXCHANGE = Script(
    _MORTAL
    + _CAMPAIGN
    + _REPORT
    + _IS_ANOTHERS
    + _READ
    + """
-- REPORT on a node, CAMPAIGN, and READ: what every heartbeat does, and a client's work for it is
-- by calls. KEYS: leader, epoch, the two channels, the section of nodes, sections.
-- ARGV: as CAMPAIGN, then field, value, '1' to wake others or '', and whose report may be replaced,
-- each incarnation between blanks. Answers as READ, lease first.
local held = redis.call('HGET', KEYS[5], ARGV[5])
if is_anothers(held, ARGV[8]) then
  return {redis.call('GET', KEYS[1]) or '', read(6)}
end
report(KEYS[5], ARGV[7] ~= '' and KEYS[4], ARGV[5], ARGV[6])
local lease = campaign(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return {lease, read(6)}
"""
)

_TIMED = ", ".join(f"'{phase.value}'" for phase in TIMED)

ACCOUNT_TURN = Script(
    _MORTAL
    + f"""
-- What account_turn.turned does, which says what it is for. KEYS: leader, account. ARGV: lease, the
-- turn as JSON. Answers the account's fields; nothing when another lease is in force.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {{}} end
local account, turn = KEYS[2], cjson.decode(ARGV[2])
local function get(name) return redis.call('HGET', account, name) end
local function set(name, value) redis.call('HSET', account, name, value) end
local function spelled(amount) return string.format('%.0f', amount) end
local function whole(name) return tonumber(get(name) or '0') end
local function number(text) return tonumber(text or '') or -1 end
local function add(name, amount)
  if amount ~= 0 then redis.call('HINCRBY', account, name, spelled(amount)) end
end

local turns, base = number(get('{TURNS}')), turn.base
if turn.is_anew then redis.call('DEL', account) end
local function is_earlier(name) return number(get(name)) < number(base[name]) end
if base.at and (not get('at') or is_earlier('at') and is_earlier('{TURNS}')) then
  redis.call('DEL', account)
  for name, value in pairs(base) do set(name, value) end
end
turns = 1 + math.max(0, turns, number(get('{TURNS}')))
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if not get('at') then
  set('at', spelled(now))
  set('began', spelled(now))
end

local gpus = whole('gpus')
local function credit(category, amount)
  if category == '{PENDING}' then
    add('{PENDING}', amount)
  else
    add('s:' .. category, amount)
    add('g:' .. category, amount * gpus)
  end
end
local passed, open = now - whole('at'), get('open') or ''
if passed < 0 or open == '' then
  add('began', passed)
else
  local unseen = turn.is_seen and 0 or math.max(0, passed - {UNSEEN_AFTER_US})
  credit(open, passed - unseen)
  credit('{Category.UNOBSERVED.value}', unseen)
  local stage = get('stage') or ''
  if stage ~= '' then add('r:' .. stage, passed) end
end

local left = whole('{PENDING}')
local function move(category, amount)
  add('{PENDING}', -amount)
  credit(category, amount)
end
for _, one in ipairs(turn.moves) do
  local taken = math.min(left, one[2])
  left = left - taken
  move(one[1], taken)
end
local total = 0
for _, one in ipairs(turn.shares) do total = total + one[2] end
if total > 0 then
  local rest = left
  for index = 1, #turn.shares - 1 do
    local share = math.min(rest, math.floor(left * (turn.shares[index][2] / total)))
    rest = rest - share
    move(turn.shares[index][1], share)
  end
  move(turn.shares[#turn.shares][1], rest)
end

for _, fold in ipairs(turn.folds) do
  local text = fold.before
  for _, phase in ipairs({{{_TIMED}}}) do
    local name = 'r:' .. fold.incident .. ':' .. phase
    text = text .. ' ' .. (get(name) or '0')
    redis.call('HDEL', account, name)
  end
  if not get('i:' .. fold.incident) then set('i:' .. fold.incident, text .. ' ' .. fold.after) end
end
for name, value in pairs(turn.fields) do set(name, value) end
set('at', spelled(now))
set('{TURNS}', spelled(turns))
set('open', turn.open)
set('stage', turn.stage)
set('gpus', spelled(turn.gpus))
mortal(account)
return redis.call('HGETALL', account)
"""
)
