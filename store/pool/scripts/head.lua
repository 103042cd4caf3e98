-- Allocates members of a pool: head.lua, one of the policies, tail.lua. All keys are in one slot, and a policy names those that it needs.
-- KEYS: 1 st, 2 cnt, those of the policy; for leases inf (it may be one of the policy's), lease, ld, ioff; m; who a sticky key has;
-- the record of the Idempotency-Key.
-- ARGV: 1 doubles: the clock in us of a test, otherwise 0; how many to allocate; us of a lease, 0 = none; leases a member may have, 0 = any
-- number; how many are excluded; ms that a sticky key is known, 0 = there is none; 1 = go on though leases have expired; who is excluded, each behind its length; of adaptive its settings; of it and weighted_random what was drawn, 0 to 1, for
-- each; for each lease its id of 22 bytes. With an Idempotency-Key also 2 head of its record, 3 its life in ms, 4 what to keep before the answer.
-- Returns a string: for each doubles allocations, of a lease also fence, expiry in us, its id; length of the member and 512 times that of its meta, the member, its meta. Or why there
-- is nobody, and ms until that may change, 0 = unknown: {-1, 0} empty, {-2, 0} excluded, {-3, 0} no weight, {-4, ms} cooling, {-5, ms}
-- saturated. Or {-20, ARGV[4] and the string of the first time}, {-21}: the record is another's, {-22}: somebody has cooled, members.lua comes first, {-23}: leases have
-- expired, reap.lua comes first, {-24}: there is no such pool.
-- Nothing is written but by a choice.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local now, count, ttl, most, excluded, sticky, onward, at = unpack('<ddddddd', ARGV[1])
local head = ARGV[2]

local state = call('GET', KEYS[1])
if not state then return {-24} end
if head then
  local record = call('GET', KEYS[#KEYS])
  if record then
    if sub(record, 1, #head) ~= head then return {-21} end
    return {-20, sub(record, #head + 1)}
  end
end

local wake, cursor, place, level, fence, due, _, _, described = unpack('<ddddddddd', state)
if now == 0 and (ttl > 0 or wake > 0) then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
if wake > 0 and wake <= now then return {-22} end
if ttl > 0 and due > 0 and due <= now and onward == 0 then return {-23} end

local bound = sticky > 0 and KEYS[head and #KEYS - 1 or #KEYS]
local fits -- whether the policy could choose the member of a sticky key; nil = any that is eligible
local moded = false -- behind each member follows how it was chosen
local out -- who is excluded; nil = nobody
for _ = 1, excluded do
  local n
  n, at = unpack('<d', ARGV[1], at)
  out = out or {}
  out[sub(ARGV[1], at, at + n - 1)] = true
  at = at + n
end
