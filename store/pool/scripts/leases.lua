-- KEYS: 1 lease, 2 ld, 3 st. ARGV: 1 doubles: the clock in us of a test, otherwise 0; how many leases at most. Reads those that expire first.
-- Returns a string: the clock in us, then for each a double, its expiry in us; its id of 22 bytes; doubles fence, start in us, length of the
-- member; the member. Or {-24}: there is no such pool.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local now, most = unpack('<dd', ARGV[1])
if call('EXISTS', KEYS[3]) == 0 then return {-24} end
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local ids, ends = {}, {}
for i, text in ipairs(call('ZRANGE', KEYS[1], '0', most - 1, 'WITHSCORES')) do
  if i % 2 == 1 then ids[#ids + 1] = text else ends[#ends + 1] = tonumber(text) end
end
local reply = {pack('<d', now)}
local held = #ids > 0 and call('HMGET', KEYS[2], _G.unpack(ids)) or {}
for i, id in ipairs(ids) do
  if held[i] then
    local fence, start = unpack('<dd', held[i])
    local m = string.sub(held[i], 17)
    reply[#reply + 1] = pack('<dc0dddc0', ends[i], id, fence, start, #m, m)
  end
end
return table.concat(reply)
