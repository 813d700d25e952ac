"""The two Lua scripts of the Redis store: one call puts a turn behind the others, one reads a session.

`append` decides what `policies.session_window` does, by the sizes in each entry's header (`tokens bytes follows cut id`, a space behind each), never by what the entry
says. It changes nothing until it has seen that the turn is new and that nobody came first, so that a script which is run again after a lost reply is safe.
Its first write is the one that a full server refuses: one that has written something is let through. Both keys of a session are in one hash slot. Sent whole each time: a server knows a script by its text, and a turn is larger than it.
"""

APPEND = """
local found = redis.call('HMGET', KEYS[1], 'v', 'seq', 'tokens', 'bytes', 'ids', 'dropped_turns', 'dropped_tokens')
local version, id, entry = ARGV[1], ARGV[2], ARGV[3]
local is_known = found[1] == version
local count = is_known and redis.call('LLEN', KEYS[2]) or 0
local seq = is_known and tonumber(found[2]) or 0
local tokens = count > 0 and tonumber(found[3]) or 0
local bytes = count > 0 and tonumber(found[4]) or 0
local ids = is_known and found[5] or ' '
local dropped_turns = is_known and tonumber(found[6]) or 0
local dropped_tokens = is_known and tonumber(found[7]) or 0
if string.find(ids, ' ' .. id .. ' ', 1, true) then return {'duplicate', seq, count, tokens, 0, 0} end
if ARGV[8] ~= '' and tonumber(ARGV[8]) ~= seq then return {'conflict', seq, 0, 0, 0, 0} end
if entry == '' then return {'too_large', seq, 0, 0, 0, 0} end
if not is_known and redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then redis.call('DEL', KEYS[1], KEYS[2]) end
redis.call('RPUSH', KEYS[2], entry)
seq, count, tokens, bytes = seq + 1, count + 1, tokens + tonumber(ARGV[4]), bytes + tonumber(ARGV[5])
ids = ids .. id .. ' '
local _, spaces = string.gsub(ids, ' ', '')
if spaces - 1 > tonumber(ARGV[12]) then ids = string.sub(ids, string.find(ids, ' ', 2, true)) end
local gone, gone_tokens = 0, 0
while count > 1 do
  local first = redis.call('LRANGE', KEYS[2], 0, 0)[1]
  local t, b, follows = string.match(first, '^(%d+) (%d+) (%d) ')
  if not (count > tonumber(ARGV[9]) or tokens > tonumber(ARGV[10]) or bytes > tonumber(ARGV[11]) or (gone > 0 and follows == '1')) then break end
  redis.call('LPOP', KEYS[2])
  count, tokens, bytes, gone, gone_tokens = count - 1, tokens - tonumber(t), bytes - tonumber(b), gone + 1, gone_tokens + tonumber(t)
end
redis.call('HSET', KEYS[1], 'v', version, 'seq', seq, 'tokens', tokens, 'bytes', bytes, 'ids', ids,
  'dropped_turns', dropped_turns + gone, 'dropped_tokens', dropped_tokens + gone_tokens)
if ARGV[6] == '1' then redis.call('HSET', KEYS[1], 'system', ARGV[7]) end
redis.call('PEXPIRE', KEYS[1], ARGV[13])
redis.call('PEXPIRE', KEYS[2], ARGV[13])
return {'appended', seq, count, tokens, gone, gone_tokens}
"""

WINDOW = """
local found = redis.call('HMGET', KEYS[1], 'v', 'seq', 'system', 'dropped_turns', 'dropped_tokens')
if found[1] ~= ARGV[1] then return {} end
return {found[2], found[3] or '', found[4], found[5], redis.call('LRANGE', KEYS[2], 0, -1)}
"""
