-- Ends a lease, or renews it.
-- KEYS: 1 inf, 2 lease, 3 ld, 4 ioff, 5 st; with an Idempotency-Key also its record.
-- ARGV: 1 doubles: the clock in us of a test, otherwise 0; us that a renewed lease lasts from now, 0 = it ends; us that it may last in all;
-- its fence; then its id. With an Idempotency-Key also 2 head of its record, 3 its life in ms.
-- Returns a string of doubles: 1 if it had expired; us since it began; us when it expires; length of the member, the member. Or {-1}: there is
-- no such lease, {-2}: its fence is another, {-3}: it has expired, and is not renewed; {-24}: there is no such pool; {-20, the string of the first time}, {-21}: the
-- record is another's.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local now, ttl, most, given, at = unpack('<dddd', ARGV[1])
local id, head = sub(ARGV[1], at), ARGV[2]

if head then
  local record = call('GET', KEYS[6])
  if record then
    if sub(record, 1, #head) ~= head then return {-21} end
    return {-20, sub(record, #head + 1)}
  end
end
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local ends, held = call('ZSCORE', KEYS[2], id), call('HGET', KEYS[3], id)
if not ends or not held then return {call('EXISTS', KEYS[5]) == 1 and -1 or -24} end
local fence, start = unpack('<dd', held)
if fence ~= given then return {-2} end
ends = tonumber(ends)
local late = ends <= now
local m = sub(held, 17)

if ttl > 0 then
  if late then return {-3} end -- lost: another may have its place
  ends = math.min(now + ttl, math.max(start + most, ends)) -- what was promised stays, also when leases may not be as long any more
  call('ZADD', KEYS[2], ends, id)
  if ends < unpack('<d', call('GETRANGE', KEYS[5], '40', '47')) then call('SETRANGE', KEYS[5], '40', pack('<d', ends)) end
else
  call('ZREM', KEYS[2], id)
  call('HDEL', KEYS[3], id)
  local left = call('ZADD', KEYS[1], 'XX', 'INCR', '-1', m)
  if left then
    if tonumber(left) < 0 then call('ZADD', KEYS[1], '0', m) end
  elseif call('HEXISTS', KEYS[4], m) == 1 and call('HINCRBY', KEYS[4], m, '-1') <= 0 then
    call('HDEL', KEYS[4], m)
  end
end
local reply = pack('<ddddc0', late and 1 or 0, now - start, ends, #m, m)
if head then call('SET', KEYS[6], head .. reply, 'PX', ARGV[3]) end
return reply
