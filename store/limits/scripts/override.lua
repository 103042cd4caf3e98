-- Sets or removes an override. KEYS: 1 the hash of the limit, see load.lua of package definitions. ARGV: 1 the field, 2 the override or '' to remove it, 3 the
-- most overrides, 4 'any' or the version that must be there, 5... fields of overrides that have expired and go.
-- Returns {0} if there is no such limit, {2} if there are too many, {3} if there is another version, {1} when it is done.
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return {0} end
if ARGV[4] ~= 'any' and ARGV[4] ~= version then return {3} end
local gone = 0
for i = 5, #ARGV do
  if ARGV[i] ~= ARGV[1] then gone = gone + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
local full = false
if ARGV[2] == '' then
  gone = gone + redis.call('HDEL', KEYS[1], ARGV[1])
elseif redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) - 2 >= tonumber(ARGV[3]) then
  full = true
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  gone = gone + 1
end
if gone > 0 then
  local time = redis.call('TIME')
  local new = math.max(time[1] * 1000000 + time[2], tonumber(version) + 1)
  redis.call('HSET', KEYS[1], 'v', string.format('%.0f', new))
end
if full then return {2} end
return {1}
