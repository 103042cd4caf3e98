-- PEXPIRE, PEXPIREAT or PERSIST that tells an absent key from an unmet condition.
-- ARGV: 1 command, 2 ms, 3 condition NX|XX|GT|LT or ''
-- Returns {0} absent, {1, applied, remaining ms or -1}.
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then return {0} end
local applied
if ARGV[1] == 'PERSIST' then
  applied = redis.call('PERSIST', key)
elseif ARGV[3] == '' then
  applied = redis.call(ARGV[1], key, ARGV[2])
else
  applied = redis.call(ARGV[1], key, ARGV[2], ARGV[3])
end
return {1, applied, redis.call('PTTL', key)}
