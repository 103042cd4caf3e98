-- Takes reports on members, or tells how they are: report_head.lua, health.lua, failed.lua, report.lua.
-- KEYS: 1 ring, 2 a, 3 as, 4 st.
-- ARGV: 1 doubles: the clock in us of a test, otherwise 0; what was drawn, 0 to 1; the settings of health.lua. 2 for each report doubles:
-- outcome 0 success, 1 failure, 2 failure by time; latency in ms, 0 = unknown; saturation 0 to 1, -1 = unknown; length of the member, the member. With no
-- ARGV[2] all members of the ring are told.
-- Returns a string, for each report doubles: state, 3 = there is no such member; weight by its health; latency in ms; 1 if it has another
-- state now; ejections in a row. When all are told the name follows, behind its length. Or {-24}: there is no such pool, {-25}: it is large, and the
-- baseline is missing, or all are to be told.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local now, drawn, start = unpack('<dd', ARGV[1])
if call('EXISTS', KEYS[4]) == 0 then return {-24} end
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local settings = ARGV[1]
