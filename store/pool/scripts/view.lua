-- KEYS: 1 st, 2 ring, 3 w; of adaptive 4 a; with a limit of leases also inf. ARGV: 1 doubles: the clock in us of a test, otherwise 0; the epoch
-- that the gateway knows; 1 of adaptive; leases a member may have, 0 = any number. Reads what the gateway needs to draw, see given.lua.
-- Returns strings: of adaptive members and what is known of their health, in turn; members that have as many leases as they may; unless the
-- epoch is the one that is known, the ring, and w; last doubles: the clock in us, 1 if there are more than 64 members, epoch; how many strings
-- there are of each kind.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local now, known, adapts, most = unpack('<dddd', ARGV[1])
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local state = call('GET', KEYS[1])
local large, epoch = 0, 0
if state then large, epoch = unpack('<dd', state, 73) end
if large == 0 then return {pack('<dddddd', now, 0, epoch, 0, 0, 0)} end
local reply = adapts == 1 and call('HGETALL', KEYS[4]) or {}
local health, full, ring = #reply, 0, 0
local function add(list)
  for i = 1, #list do reply[#reply + 1] = list[i] end
  return #list
end
if most > 0 then full = add(call('ZRANGEBYSCORE', KEYS[#KEYS], most, '+inf')) end
if epoch ~= known then
  ring = add(call('ZRANGE', KEYS[2], '0', '-1'))
  reply[#reply + 1] = call('GET', KEYS[3])
end
reply[#reply + 1] = pack('<dddddd', now, large, epoch, health, full, ring)
return reply
