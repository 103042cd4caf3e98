-- Weighted round robin of more than 64 members, by a schedule that the gateway has computed of what smooth.lua or classic.lua would choose. O(1).
-- KEYS: 3 ring, 4 w, 5 sch. ARGV[1] has behind who is excluded a double: 1 smooth, 2 classic. sch has for each turn two bytes, the
-- place in the ring; what follows is for the gateway alone. st says which turn is next, how many there are, 0 = none that is good, -1 = nobody
-- has a weight, and whose they are: 1 of smooth, 3 of classic, one more if the first follows the last.
-- Who is excluded is passed over and stays next: of 256 turns at most. Turns in another order are not repeated.
-- Returns also {-25}: the pool has become small, {-26}: there is no schedule, or not enough of it, {-27}: all 256 are excluded.
local leases = 6
local large, _, turn, length, plan = unpack('<ddddd', state, 73)
local variant
variant, at = unpack('<d', ARGV[1], at)
if large == 0 then return {-25} end
local again = plan == 2 * variant
if length == 0 or not again and (plan ~= 2 * variant - 1 or length > 0 and turn + count > length) then return {-26} end

if again then turn = turn % length end

-- turns is the text of n turns from the next one on.
local function turns(n) return call('GETRANGE', KEYS[5], 2 * turn, 2 * math.min(turn + n, length) - 1) end

local text, passed, picked, ends = '', {}, {}, {} -- picked are turns, and ends how many were looked at for each
local nobody = -3
if out then
  local skip, skipped = {}, 0
  for m in pairs(out) do
    local rank = call('ZRANK', KEYS[3], m)
    if rank then
      skip[rank] = true
      skipped = skipped + 1
    end
  end
  if skipped == call('ZCARD', KEYS[3]) then nobody = -2 end
  if nobody == -3 and length > 0 then
    local reach = math.min(256, length - turn)
    text = turns(reach)
    if #text < 2 * reach then return {-26} end
    for i = 1, reach do
      local one = sub(text, 2 * i - 1, 2 * i)
      if skip[unpack('<H', one)] then
        passed[#passed + 1] = one
      else
        picked[#picked + 1] = one
        ends[#picked] = i
        if #picked == count then break end
      end
    end
    if #picked < count and not (again and reach == length) then
      return {reach < 256 and -26 or -27}
    end
  end
elseif length > 0 then
  text = turns(count)
  if again and text ~= '' then
    while #text < 2 * count do text = text .. call('GETRANGE', KEYS[5], '0', 2 * math.min(count - #text / 2, length) - 1) end
  end
  if #text < 2 * count then return {-26} end
end

local used = 0
local function choose()
  local one
  if out then
    if #picked == 0 then return nil, nobody end
    one = picked[used % #picked + 1] -- a short round of which all were looked at begins anew
  else
    if length < 0 then return nil, nobody end
    one = sub(text, 2 * used + 1, 2 * used + 2)
  end
  used = used + 1
  local rank = unpack('<H', one)
  return call('ZRANGE', KEYS[3], rank, rank)[1]
end
local function keep()
  if used == 0 then return end
  if out then
    used = math.min(used, #picked)
    local before = ends[used] - used -- how many were passed over
    if before > 0 then
      call('SETRANGE', KEYS[5], 2 * turn, table.concat(picked, '', 1, used) .. table.concat(passed, '', 1, before))
      call('SETRANGE', KEYS[1], '104', pack('<d', 2 * variant - 1))
      again = false
    end
  end
  turn = turn + used
  if again and turn > length then turn = turn % length end -- of a whole round nothing is left to say
  call('SETRANGE', KEYS[1], '88', pack('<d', turn))
end
if bound then
  fits = function(m)
    local at_weight = call('ZRANK', KEYS[3], m) * 16
    return unpack('<d', call('GETRANGE', KEYS[4], at_weight, at_weight + 7)) > 0
  end
end
