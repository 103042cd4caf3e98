-- APPEND within the value limit, on plain values only.
-- ARGV: 1 data, 2 magic, 3 value limit, 4 ttl mode none|px|pxat (when created), 5 ms, 6 default, 7 max
-- Returns {1, length}, {-3, length} too large, {-10} the gateway must rewrite the value, {-1}, {-2}.
local key, data, magic = KEYS[1], ARGV[1], ARGV[2]
local default, max = tonumber(ARGV[6]), tonumber(ARGV[7])
local size = redis.call('STRLEN', key)
local exists = size > 0 or redis.call('EXISTS', key) == 1
local head = redis.call('GETRANGE', key, 0, #magic - 1)
if string.sub(head .. data, 1, #magic) == magic then return {-10} end
if size + #data > tonumber(ARGV[3]) then return {-3, size + #data} end
if exists then
  local bad = kept(key, max)
  if bad < 0 then return {bad} end
  return {1, redis.call('APPEND', key, data)}
end
local life = lifetime(ARGV[4], ARGV[5], default)
if #life == 0 and max > 0 then return {-1} end
redis.call('SET', key, data, unpack(life))
return {1, #data}
