-- SETRANGE on plain values, where it cannot touch the first bytes that tell an envelope.
-- ARGV: 1 data, 2 magic, 3 offset, 4 default, 5 max. The gateway has checked offset + length against the value limit.
-- Returns {1, length}, {-10} the gateway must rewrite the value, {-1}, {-2}.
local key, data, magic, offset = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local default, max = tonumber(ARGV[4]), tonumber(ARGV[5])
local size = redis.call('STRLEN', key)
local exists = size > 0 or redis.call('EXISTS', key) == 1
if offset < #magic then return {-10} end
if redis.call('GETRANGE', key, 0, #magic - 1) == magic then return {-10} end
if exists then
  local bad = kept(key, max)
  if bad < 0 then return {bad} end
else
  if default == 0 and max > 0 then return {-1} end
end
local length = redis.call('SETRANGE', key, ARGV[3], data)
if not exists and default > 0 then redis.call('PEXPIRE', key, ARGV[4]) end
return {1, length}
