#include "models/common/towers.h"

namespace rullama {

Result<Picture> PictureTower::Scale(Picture picture, uint32_t budget) const {
  RL_ASSIGN_OR_RETURN(const BlockGrid grid, Fit(picture.width, picture.height, budget));
  const uint32_t width = grid.columns * SquareSide(), height = grid.rows * SquareSide();
  if (picture.width == width && picture.height == height) return picture;
  return Resize(picture, width, height);
}

}  // namespace rullama
