-- KEYS: 3 ring, 4 a, 5 w, 6 as. ARGV[1] has the settings behind who is excluded, and then what was drawn. as has doubles: when it was made;
-- when the next trial is due; 1 if all are used; then the sums of the weights up to each member. It is good for 200 ms, until a member has
-- another state or weight, or until a trial is due: O(log n), and O(n) when it is made or if some are excluded.
-- Returns behind each member also a double: 0, 1 it is a trial of one that was ejected, 2 too few are healthy, so that all are used.
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local settings, start = ARGV[1], at
