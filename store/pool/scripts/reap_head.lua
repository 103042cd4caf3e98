-- Ends leases that have expired: work that was abandoned. reap_head.lua, health.lua, failed.lua, reap.lua.
-- KEYS: 1 st, 2 inf, 3 lease, 4 ld, 5 ioff; where that is a failure of the member also 6 ring, 7 a, 8 as.
-- ARGV: 1 doubles: the clock in us of a test, otherwise 0; what was drawn, 0 to 1; how many at most; the settings of health.lua.
-- Returns {how many were ended, how many are out, how many members that has ejected}, or {-24}: there is no such pool.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local now, drawn, most, start = unpack('<ddd', ARGV[1])
local settings = ARGV[1]
local state = call('GET', KEYS[1])
if not state then return {-24} end
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local due, abandoned = unpack('<dd', state, 41)
