-- Each gets its weight to its credit; who then has most is chosen, the first of several, and pays the sum.
if plan == 1 or plan == 2 then return {-26} end -- the pool was larger: its schedule has the credits
local function choose()
  local best, top, sum = nil, 0, 0
  for i = 1, size do
    local weight = numbers[2 * i - 1]
    if weight > 0 and not skip[i] then
      local credit = numbers[2 * i] + weight
      numbers[2 * i] = credit
      sum = sum + weight
      if not best or credit > top then best, top = i, credit end
    end
  end
  if not best then return nil, nobody end
  numbers[2 * best] = top - sum
  return at_place(best)
end
local function keep() call('SET', KEYS[3], pack(form, _G.unpack(numbers, 1, 2 * size))) end
