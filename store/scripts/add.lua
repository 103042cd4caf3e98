-- INCRBY or INCRBYFLOAT with bounds and a TTL. Numbers travel as decimal strings: Lua's lose what is beyond 2^53.
-- ARGV: 1 delta, 2 kind i|f, 3 min or '', 4 max or '', 5 ttl mode none|px|pxat, 6 ms, 7 when created|always, 8 default, 9 max ttl
-- Returns {1, value}, {0, value} outside the bounds, {-4} a fraction on a stored integer, {-1}, {-2}.
local key, delta = KEYS[1], ARGV[1]
local default, max = tonumber(ARGV[8]), tonumber(ARGV[9])

local function integer(s) return string.match(s, '^%-?%d+$') ~= nil end

local function less(a, b)
  if not (integer(a) and integer(b)) then return tonumber(a) < tonumber(b) end
  local na, nb = string.sub(a, 1, 1) == '-', string.sub(b, 1, 1) == '-'
  if na ~= nb then return na end
  if na then a, b = string.sub(b, 2), string.sub(a, 2) end
  if #a ~= #b then return #a < #b end
  return a < b
end

local old = redis.call('GET', key)
local life = {}
if not old then
  life = lifetime(ARGV[5], ARGV[6], default)
  if #life == 0 and max > 0 then return {-1} end
elseif ARGV[7] == 'always' and ARGV[5] ~= 'none' then
  life = lifetime(ARGV[5], ARGV[6], 0)
else
  local bad = kept(key, max)
  if bad < 0 then return {bad} end
end

local fraction = ARGV[2] == 'f'
if old and integer(old) and fraction then return {-4} end
if old and not integer(old) then fraction = true end
local done = redis.pcall(fraction and 'INCRBYFLOAT' or 'INCRBY', key, delta)
if type(done) == 'table' and done.err then return done end

local value = redis.call('GET', key)
-- A fractional counter stays one: without this, 1.5 + 0.5 would become the integer 2, and the next fraction be refused.
if fraction and integer(value) then
  value = value .. '.0'
  redis.call('SET', key, value, 'KEEPTTL')
end
if ARGV[3] ~= '' and less(value, ARGV[3]) or ARGV[4] ~= '' and less(ARGV[4], value) then
  if old then redis.call('SET', key, old, 'KEEPTTL') else redis.call('DEL', key) end
  return {0, value}
end
if life[1] == 'PX' then redis.call('PEXPIRE', key, life[2]) end
if life[1] == 'PXAT' then redis.call('PEXPIREAT', key, life[2]) end
return {1, value}
