-- Counts the gateways of a cluster. KEYS[1]: a sorted set of their names, by when they came last, in ms. ARGV: 1 a name, 2 stay or leave,
-- 3 after how many ms one is gone. Returns {how many there are}.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[2] == 'leave' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return {redis.call('ZCARD', KEYS[1])}
