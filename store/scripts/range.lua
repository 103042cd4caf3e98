-- GETRANGE that knows the whole length and loads no more than a cap. Reads only.
-- ARGV: 1 start, 2 end (Redis' indices, negative from the end), 3 cap in bytes, 4 bytes of head to return
-- Returns {0} absent, {1, length, head, data} or {2, length, head} when the part is over the cap.
local key = KEYS[1]
local size = redis.call('STRLEN', key)
if size == 0 and redis.call('EXISTS', key) == 0 then return {0} end
local head = redis.call('GETRANGE', key, 0, tonumber(ARGV[4]) - 1)
local from, to = tonumber(ARGV[1]), tonumber(ARGV[2])
if from < 0 then from = math.max(from + size, 0) end
if to < 0 then to = to + size end
to = math.min(to, size - 1)
if to - from + 1 > tonumber(ARGV[3]) then return {2, size, head} end
if to < from then return {1, size, head, ''} end
return {1, size, head, redis.call('GETRANGE', key, from, to)}
