-- found is the first of n sums, doubles in text from a place on, that is greater than x. They do not fall, and the last one is greater.
local function found(text, from, n, x)
  local low, high = 1, n
  while low < high do
    local middle = (low + high) / 2
    middle = middle - middle % 1
    if unpack('<d', text, from + 8 * middle - 8) > x then high = middle else low = middle + 1 end
  end
  return low
end
