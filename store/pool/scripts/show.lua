-- KEYS: 1 st, 2 m, 3 cnt, 4 off, 5 cool, 6 inf, 7 ioff. Reads what is known of all members: st, then for each other key how many strings
-- follow, and these. O(n). Or {-24}: there is no such pool.
local call = redis.call
local state = call('GET', KEYS[1])
if not state then return {-24} end
local reply = {state}
local function add(list)
  reply[#reply + 1] = #list
  for _, text in ipairs(list) do reply[#reply + 1] = text end
end
add(call('HGETALL', KEYS[2]))
for i = 3, 6 do add(call('ZRANGE', KEYS[i], '0', '-1', 'WITHSCORES')) end
add(call('HGETALL', KEYS[7]))
return reply
