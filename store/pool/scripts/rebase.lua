-- Takes the least count of the eligible from all counts, down to 0 at least: what was kept of others may be less. O(n).
-- KEYS: 1 st, 2 cnt, 3 off. Returns {what was taken}, or {-24}: there is no such pool.
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return {-24} end
local least = tonumber(call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')[2]) or 0
if least == 0 then return {0} end
for i = 2, 3 do
  local z = call('ZRANGE', KEYS[i], '0', '-1', 'WITHSCORES')
  for n = 1, #z, 2 do z[n], z[n + 1] = math.max(0, z[n + 1] - least), z[n] end
  for n = 1, #z, 1000 do call('ZADD', KEYS[i], unpack(z, n, math.min(n + 999, #z))) end
end
return {least}
