-- KEYS: 3 ring, 4 a, 5 w. ARGV[1] has the settings behind who is excluded, and then what was drawn. O(n).
-- Returns behind each member also a double: 0, 1 it is a trial of one that was ejected, 2 too few are healthy, so that all are used.
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local settings, start = ARGV[1], at
