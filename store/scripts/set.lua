-- SET under a condition, or keeping a TTL that a policy bounds.
-- ARGV: 1 value, 2 condition any|nx|xx|cas, 3 the expected stored bytes (cas), 4 ttl mode none|px|pxat|keep, 5 ms, 6 default, 7 max
-- Returns {1} written, {0} condition not met (cas: changed meanwhile), {-1}, {-2}.
local key, cond, mode = KEYS[1], ARGV[2], ARGV[4]
local default, max = tonumber(ARGV[6]), tonumber(ARGV[7])
local exists
if cond == 'cas' then
  local stored = redis.call('GET', key)
  if stored ~= ARGV[3] then return {0} end
  exists = true
else
  exists = redis.call('EXISTS', key) == 1
  if cond == 'nx' and exists or cond == 'xx' and not exists then return {0} end
end
local args = {'SET', key, ARGV[1]}
if mode == 'keep' and exists then
  local bad = kept(key, max)
  if bad < 0 then return {bad} end
  args[4] = 'KEEPTTL'
else
  local life = lifetime(mode, ARGV[5], default)
  if #life == 0 and max > 0 then return {-1} end
  for i = 1, #life do args[3 + i] = life[i] end
end
redis.call(unpack(args))
return {1}
