-- KEYS: 1 st, 2 w, 3 sch, 4 ring. ARGV: members. Reads what a schedule is computed of: st, w, sch, and of each of the members a double: its
-- place in the ring, -1 = it is not there.
local ranks = {}
for i, m in ipairs(ARGV) do ranks[i] = struct.pack('<d', redis.call('ZRANK', KEYS[4], m) or -1) end
return {redis.call('GET', KEYS[1]) or '', redis.call('GET', KEYS[2]) or '', redis.call('GET', KEYS[3]) or '', table.concat(ranks)}
