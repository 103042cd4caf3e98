-- Stores a definition. KEYS: 1 its hash, see load.lua; 2, if there is one, what begins with it. ARGV: 1 what must be there: 'any', 'none',
-- 'some', or a version; 2 the definition; 3 what KEYS[2] begins with.
-- Returns {0} if something else is there, otherwise {1, field, value, ...} of the hash as it is now.
-- Versions never repeat, also when it was deleted in between: they are the time, or the last one and one.
local version = redis.call('HGET', KEYS[1], 'v')
local want = ARGV[1]
if want == 'none' then
  if version then return {0} end
elseif want == 'some' then
  if not version then return {0} end
elseif want ~= 'any' and version ~= want then
  return {0}
end
local time = redis.call('TIME')
local new = math.max(time[1] * 1000000 + time[2], (tonumber(version) or 0) + 1)
redis.call('HSET', KEYS[1], 'v', string.format('%.0f', new), 'd', ARGV[2])
if KEYS[2] then redis.call('SETNX', KEYS[2], ARGV[3]) end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, 1)
return reply
