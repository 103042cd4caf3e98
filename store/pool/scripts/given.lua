-- Of more than 64 members the gateway draws, by what it has read at most 200 ms before, see view.lua. This allocates whom it has drawn, and
-- looks whether they may still be: O(log n).
-- KEYS: 3 ring, 4 w; of adaptive 5 a. ARGV[1] has behind who is excluded doubles: epoch of what was read; 1 of adaptive; -2, -3 or -5 why
-- nobody was drawn, or 0; 1 = fewer than the number to allocate will do; how many were drawn, of whom those above that number are for when
-- others are full; and of each how it was chosen, as adaptive_choose.lua has it, and the member behind its length.
-- Returns also {-25}: the pool has become small, {-28}: it is another than was read, or others have leased so many that fewer are left.
local large, epoch = unpack('<dd', state, 73)
if large == 0 then return {-25} end
local known, adapts, nobody, fewer, drawn
known, adapts, nobody, fewer, drawn, at = unpack('<ddddd', ARGV[1], at)
moded = adapts == 1
local leases = moded and 6 or 5

local function weighs(m)
  local at_weight = call('ZRANK', KEYS[3], m) * 16
  return unpack('<d', call('GETRANGE', KEYS[4], at_weight, at_weight + 7)) > 0
end
local function full(m) return most > 0 and ttl > 0 and tonumber(call('ZSCORE', KEYS[leases], m)) >= most end

-- usable says whether m may be chosen so. A trial is one a second of all gateways.
local function usable(m, mode)
  if epoch ~= known and not (call('ZSCORE', KEYS[2], m) and weighs(m)) then return false end
  if not moded or mode == 2 then return true end
  local o = call('HGET', KEYS[5], m)
  local condition = o and unpack('<d', o) or 0
  if mode == 0 then return condition < 2 end
  if now == 0 then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  return condition == 2 and now >= unpack('<d', o, 81) and now - unpack('<d', o, 97) >= 1000000
end

local list, how = {}, {}
for i = 1, drawn do
  local mode, n
  mode, n, at = unpack('<dd', ARGV[1], at)
  local m = sub(ARGV[1], at, at + n - 1)
  at = at + n
  if usable(m, mode) then
    list[#list + 1] = m
    how[#list] = mode
  elseif i <= count then
    return {-28}
  end
end

if #list == 0 and nobody == 0 then return {-28} end -- the pool was small when it was read

if fewer == 0 and count > 1 and most > 0 and ttl > 0 and #list > 0 then
  local taken, free = {}, 0
  for _, m in ipairs(list) do
    local n = taken[m] or tonumber(call('ZSCORE', KEYS[leases], m))
    if n < most then n, free = n + 1, free + 1 end
    taken[m] = n
  end
  if free < count then return {-28} end
end

local next_of = 0
local function choose()
  while next_of < #list do
    next_of = next_of + 1
    local m = list[next_of]
    if not full(m) then
      if how[next_of] == 1 then
        local o = call('HGET', KEYS[5], m)
        call('HSET', KEYS[5], m, sub(o, 1, 96) .. pack('<d', now) .. sub(o, 105))
      end
      return m, how[next_of]
    end
    nobody = -28
  end
  return nil, nobody
end
local keep
if bound then
  fits = function(m)
    if not weighs(m) or full(m) then return false end
    local o = moded and call('HGET', KEYS[5], m)
    return not o or unpack('<d', o) < 2
  end
end
