-- KEYS: 3 ring, 4 ws, 5 w. The gateway has drawn: Redis' own generator is not random on old servers. ws has the sums of the weights up to
-- each member, and is made anew when it is missing: O(log n), and O(n) after a change of the members or if some are excluded.
local leases = 6
local drawn = at
at = at + 8 * count
local sums = not out and call('GET', KEYS[4])
local made = not sums
local nobody = -2
if made then
  local weights = call('GET', KEYS[5]) or ''
  local skip, list, sum = {}, {}, 0
  if out then
    for m in pairs(out) do
      local rank = call('ZRANK', KEYS[3], m)
      if rank then skip[rank + 1] = true end
    end
  end
  for i = 1, #weights / 16 do
    if not skip[i] then
      sum = sum + unpack('<d', weights, i * 16 - 15)
      nobody = -3
    end
    list[i] = sum
  end
  sums = pack('<' .. string.rep('d', #list), _G.unpack(list))
end
local size = #sums / 8
local total = size > 0 and unpack('<d', sums, #sums - 7) or 0
local function choose(n)
  if total == 0 then return nil, nobody end
  local i = found(sums, 1, size, unpack('<d', ARGV[1], drawn + 8 * n - 8) * total)
  return call('ZRANGE', KEYS[3], i - 1, i - 1)[1]
end
local function keep()
  if made and not out then call('SET', KEYS[4], sums) end
end
